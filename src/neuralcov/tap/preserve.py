"""Run a model for measurement and leave it exactly as it was: modes, buffers, compilation, fast paths."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import get_ident, local
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError
from neuralcov.core.guards import Turn


def original_module(model: nn.Module) -> nn.Module:
    """Return the module behind ``torch.compile`` or a parallel wrapper: hooks added to those would never fire."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def is_compiled(model: nn.Module) -> bool:
    """Return whether a model, or what a parallel wrapper holds, was compiled, in whichever of the two ways."""
    inner = original_module(model)
    while model is not inner:
        if hasattr(model, "_orig_mod"):
            return True
        model = model.module  # type: ignore[assignment]
    return getattr(inner, "_compiled_call_impl", None) is not None


# In place of a mode, for passes that somebody else makes: these may train the model.
AS_IT_IS = "as it is"

_turns: WeakKeyDictionary[nn.Module, Turn] = WeakKeyDictionary()
_open: list[Block] = []
# Guards the two above, what they say of modules, and what holds for the whole process; never held while a model runs.
_registry = Turn()
_process = ExitStack()
# Per thread, the marks of passes under way that are made by a tap and not by a user.
_measured = local()


class _Mark:
    """Stand for a pass that a tap makes, for as long as the pass lasts."""


def turn_of(model: nn.Module) -> Turn:
    """Return the lock under which measured passes of a model happen one at a time, whoever measures."""
    with _registry:
        return _turns.setdefault(model, Turn())


@dataclass(eq=False)
class Block:
    """A model kept as measurement needs it, and how its modules are to be afterwards.

    Several blocks may hold one module, of a model and of a part of it or in several threads: the last one out puts it
    back. ``thread`` is the only one that uses the block, ``None`` if there are several.
    """

    mode: str
    thread: int | None
    nested: bool
    training: dict[nn.Module, bool]
    buffers: dict[nn.Module, list[tuple[str, Tensor, Tensor]]]


@contextmanager
def preserved(model: nn.Module, mode: str) -> Iterator[Block]:
    """Put a model into eval mode (unless ``mode="keep"``), run as modules; leave it as it was."""
    block = enter(model, mode)
    try:
        yield block
    finally:
        leave(block)


def join(block: Block) -> None:
    """Use a block that is open; once several threads do, none of them may nest another mode in it."""
    with _registry:
        if block.thread != get_ident():
            _may_nest(block.mode, _around(block.training))
            block.thread = None


def _around(modules: Iterable[nn.Module]) -> list[Block]:
    return [block for block in _open if any(module in block.training for module in modules)]


def _may_nest(mode: str, others: list[Block]) -> bool:
    """Return whether one of the blocks has another mode; an error if another thread uses one of them then."""
    if all(block.mode == mode for block in others):
        return False
    if any(block.thread != get_ident() for block in others):
        raise InputError(
            f"mode={mode!r} while another thread measures this model, or a part of it, with "
            f"mode={'eval' if mode == 'keep' else 'keep'!r}: wait for it or measure a copy of the model"
        )
    return True


def enter(model: nn.Module, mode: str) -> Block:
    """Begin what ``preserved`` does; whoever calls this must ``leave`` the block, come what may."""
    with _registry:
        # As it is: nothing to put back, and others may still ask for a mode.
        training = {} if mode == AS_IT_IS else {module: module.training for module in model.modules()}
        others = _around(training) if _open else []
        nested = _may_nest(mode, others)
        buffers = {module: _copied_buffers(module) for module in training if module._buffers}
        for other in () if nested else others:
            # What another block holds is not as it was before: go by what that block remembers.
            training |= {module: flag for module, flag in other.training.items() if module in training}
            buffers |= {module: copies for module, copies in other.buffers.items() if module in training}
        if not _open:
            # The fused transformer encoder bypasses its submodules.
            _process.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
            torch.backends.mha.set_fastpath_enabled(False)
            if "torch._dynamo" in sys.modules:
                # Submodules may be compiled on their own; run them as the modules they are.
                _process.enter_context(torch.compiler.set_stance("force_eager"))
        block = Block(mode, get_ident(), nested, training, buffers)
        _open.append(block)
    try:
        if mode == "eval":
            model.eval()
    except BaseException:
        leave(block)
        raise
    return block


@contextmanager
def measured_pass() -> Iterator[None]:
    """Mark a pass as one that a tap makes, so that nobody who listens to a user's passes takes it for one."""
    # Known by an object that dies with this frame: one that breaks off at whatever line is not taken to go on.
    mark = _Mark()
    try:
        _measured.__dict__.setdefault("passes", WeakSet()).add(mark)
        yield
    finally:
        _measured.passes.discard(mark)


def runs_again() -> bool:
    """Return whether autograd is at work in this thread, which runs checkpointed modules once more for gradients."""
    return torch._C._current_graph_task_id() != -1


def within_transform() -> bool:
    """Return whether ``vmap``, ``grad`` or the like of ``torch.func`` is at work, whose tensors are no plain ones."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_recorded() -> bool:
    """Return whether a call of a model is only written down, by a tracer, an export, or tensors without numbers."""
    keys = torch._C._TorchDispatchModeKey
    return torch._C._is_tracing() or any(torch._C._get_dispatch_mode(key) for key in (keys.FAKE, keys.PROXY))


def is_measured_pass() -> bool:
    """Return whether this thread is within a pass that a tap makes."""
    return len(getattr(_measured, "passes", ())) > 0


@contextmanager
def random_state_kept(model: nn.Module) -> Iterator[None]:
    """Put the random state back afterwards, as if no number had been drawn."""
    devices = {parameter.device for parameter in model.parameters()}
    cuda = sorted({device.index or 0 for device in devices if device.type == "cuda"})
    on_mps = torch.mps.get_rng_state() if any(device.type == "mps" for device in devices) else None
    plain, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=cuda):
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(of_numpy)
        if on_mps is not None:
            torch.mps.set_rng_state(on_mps)


def leave(block: Block) -> None:
    """Put back what no other block holds."""
    with _registry:
        _open.remove(block)
        if not _open:
            _process.close()
        held = {module for other in _open for module in other.training} if _open and not block.nested else ()
        for module, flag in block.training.items():
            if module not in held:
                module.training = flag
        for module, copies in block.buffers.items():
            if module not in held:
                _restore_buffers(module, copies)


def _copied_buffers(module: nn.Module) -> list[tuple[str, Tensor, Tensor]]:
    return [(name, buffer, buffer.clone()) for name, buffer in module._buffers.items() if buffer is not None]


def _restore_buffers(module: nn.Module, buffers: list[tuple[str, Tensor, Tensor]]) -> None:
    """Copy every value back: batch norm writes running statistics without raising a tensor's version."""
    for name, buffer, copy in buffers:
        with torch.inference_mode(buffer.is_inference()), torch.no_grad():
            buffer.copy_(copy)
        # Scripted modules keep their buffers elsewhere and hand out another view of them every time.
        if not isinstance(module, torch.jit.ScriptModule) and module._buffers.get(name) is not buffer:
            module._buffers[name] = buffer

"""What speaks against recording a model's passes: all that Python does in a pass is done once, when it is recorded.

A recording repeats what a pass asked of the device, and nothing else. So a model may not count its passes, keep what it
computed, write to its buffers, draw random numbers, or have hooks of somebody else, who expects to be called.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.tap import Tap

_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
_MOST_ITEMS = 256
# What every module has, and no pass changes: parameters are watched elsewhere, buffers here by themselves.
_OWN = frozenset(vars(nn.Module())) - {"training"}


def against_model(tap: Tap) -> str | None:
    """Return why no pass of a model can be recorded as things are, ``None`` if nothing is known to speak against it."""
    devices = {parameter.device for parameter in tap.model.parameters()}
    if not devices:
        return "the model has no parameters that tell its device"
    if len(devices) > 1:
        return f"the model is spread over {len(devices)} devices"
    (device,) = devices
    if device.type != "cuda":
        return f"the model is on a {device.type.upper()}, and only a GPU records"
    return None


def against_hooks(tap: Tap) -> str | None:
    """Return which module has hooks of somebody else, or trains, if one does; to be asked within a block."""
    for name, module in tap.model.named_modules():
        called = [*module._forward_hooks, *module._forward_pre_hooks]
        if any(hook not in tap.hook_ids for hook in called):
            return f"module {name or 'itself'!r} has hooks of somebody else, which a recording would not call"
        if module.training:
            return f"module {name or 'itself'!r} is in training mode"
    everywhere = (nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks)
    return "hooks on all modules would not be called by a recording" if any(everywhere) else None


def shape_of(inputs: Any) -> tuple[Hashable, ...] | None:
    """Return what inputs of one recording have in common; ``None`` for inputs with parts that cannot be copied."""
    parts: list[Hashable] = []
    for place, leaf in _leaves(inputs, ()):
        if type(leaf) is Tensor and leaf.layout == torch.strided:
            parts.append((place, tuple(leaf.shape), leaf.dtype, leaf.stride()))
        elif isinstance(leaf, _PLAIN):
            parts.append((place, leaf))
        else:
            return None
    return tuple(parts)


def _leaves(tree: Any, place: tuple[Hashable, ...]) -> Iterator[tuple[tuple[Hashable, ...], Any]]:
    if isinstance(tree, Mapping):
        for name, part in tree.items():
            yield from _leaves(part, (*place, name))
    elif isinstance(tree, (tuple, list)):
        for index, part in enumerate(tree):
            yield from _leaves(part, (*place, index))
    else:
        yield place, tree


def told_shape(shape: tuple[Hashable, ...]) -> str:
    """Return the shapes of inputs in words."""
    tensors: list[Any] = [part for part in shape if isinstance(part, tuple) and len(part) == 4]
    return ", ".join(f"{tuple(size)} {str(dtype).removeprefix('torch.')}" for _, size, dtype, _ in tensors)


def circumstances() -> tuple[Hashable, ...]:
    """Return what else decides how PyTorch computes: a recording made under other settings is not replayed."""
    backends = torch.backends
    return (
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        backends.cuda.matmul.allow_tf32,
        backends.cudnn.allow_tf32,
        backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
    )


@dataclass(frozen=True, eq=False)
class Traces:
    """Hold all that a pass might leave behind in a model and in the generators of random numbers."""

    kept: Mapping[tuple[str, str], Any]
    random: tuple[Tensor, ...]

    @classmethod
    def of(cls, tap: Tap) -> Traces:
        """Look at a model as it is."""
        kept: dict[tuple[str, str], Any] = {}
        for name, module in tap.model.named_modules():
            for attribute, value in vars(module).items():
                if attribute not in _OWN:
                    kept[name, attribute] = _mark(value)
            for buffer, value in module._buffers.items():
                kept[name, buffer] = _mark(value)
        random = [torch.get_rng_state()]
        if tap.device.type == "cuda":
            random.append(torch.cuda.get_rng_state(tap.device))
        return cls(kept, tuple(random))

    def left(self, after: Traces) -> str | None:
        """Return what the pass between two looks left behind, in words; ``None`` if nothing."""
        for place in {**self.kept, **after.kept}:
            if not _same(self.kept.get(place), after.kept.get(place)):
                module, attribute = place
                return f"a pass changes {'.'.join(part for part in (module, attribute) if part)!r} of the model"
        if any(not torch.equal(one, other) for one, other in zip(self.random, after.random, strict=True)):
            return "a pass draws random numbers"
        return None


def _mark(value: Any) -> tuple[Any, ...]:
    """Return what tells a value as it is now from what it may be later; holds on to it, so that it stays itself."""
    if isinstance(value, _PLAIN):
        return ("plain", value)
    if isinstance(value, Tensor):
        return ("itself", value, None if value.is_inference() else value._version)
    if isinstance(value, (list, tuple, dict, set)):
        items = list(value.items() if isinstance(value, dict) else value)[:_MOST_ITEMS]
        return ("holds", value, len(value), *(part for item in items for part in _flat(item)))
    return ("itself", value)


def _flat(item: Any) -> tuple[Any, ...]:
    return tuple(item) if isinstance(item, tuple) else (item,)


def _same(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return False
    pairs = zip(one, other, strict=True)
    return all(a is b or (isinstance(a, _PLAIN) and type(a) is type(b) and _equal(a, b)) for a, b in pairs)


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)

"""Hear the passes that somebody else makes: hooks on the model itself tell where each of them begins and ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.core.findings import Finding
from neuralcov.tap.forward_pass import ForwardPass
from neuralcov.tap.hooks import Tap
from neuralcov.tap.preserve import is_measured_pass, is_recorded, runs_again, turn_of, within_transform
from neuralcov.tap.signatures import Form, form_of
from neuralcov.tap.tokens import TokenRows

BatchOf: TypeAlias = "Callable[[Any], int] | str"

# So many layers are named in one sentence.
_NAMED = 4
# Where PyTorch calls modules and their hooks.
_MODULE_FILE = nn.Module.__call__.__code__.co_filename


@dataclass
class Heard:
    """Count what was heard in one block.

    Args:
        passes: calls of the model that ended well.
        inputs: rows of all these passes.
        training: passes in training mode, in which dropout and the like take part.
        failed: calls of the model that raised.
        empty: passes that reached no layer, of which nothing is observed.
        outside: layer → calls of it outside a pass of the model, which are not heard.
        skipped: layer → passes that did not reach it.
    """

    passes: int = 0
    inputs: int = 0
    training: int = 0
    failed: int = 0
    empty: int = 0
    outside: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def add(self, other: Heard) -> None:
        """Take in what another block heard."""
        for name in ("passes", "inputs", "training", "failed", "empty"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in ((self.outside, other.outside), (self.skipped, other.skipped)):
            for layer, times in theirs.items():
                mine[layer] = mine.get(layer, 0) + times

    def findings(self) -> list[Finding]:
        """Return what a person should know of the passes: in which mode they were made, and what they left out."""
        said = []
        if self.training:
            said.append(
                f"{_passes(self.training)} in training mode, in which dropout and batch norms do otherwise than in "
                "use: call model.eval() before"
            )
        by_times: dict[int, list[str]] = {}
        for layer, times in self.skipped.items():
            by_times.setdefault(times, []).append(layer)
        for times, layers in by_times.items():
            named = ", ".join(map(repr, layers[:_NAMED]))
            more = f" and {counted(len(layers) - _NAMED, 'more layer')}" if len(layers) > _NAMED else ""
            said.append(f"{_passes(times)} without a call of {named}{more}, whose neurons count as not covered by them")
        if self.empty:
            said.append(f"{_passes(self.empty)} without a call of any layer, of which nothing is observed")
        return [Finding("listening", sentence) for sentence in said]


def _passes(count: int) -> str:
    return counted(count, "pass")


class Ear:
    """Hear one model.

    Args:
        tap: of the model.
        begins: called before each pass.
        ends: given what each pass left, the labels among its arguments, and the rows of tokens it was divided into.
        relevance: whether to follow the logit of the chosen class back to every layer.
        predictions: whether an output that has no classes to read is refused.
        readable: whether to read classes off outputs that have some.
        counts: from the model to whether the call of it that begins is a pass.
        batch: the name of the argument with one row per input, or from the arguments to the number of inputs, where
            their tensors disagree.
    """

    def __init__(
        self,
        tap: Tap,
        *,
        begins: Callable[[], None],
        ends: Callable[[Activations, Any, TokenRows | None], None],
        relevance: bool,
        predictions: bool,
        readable: bool,
        counts: Callable[[nn.Module], bool],
        batch: BatchOf | None = None,
    ) -> None:
        self._counts, self._batch = counts, batch
        self._tap, self._begins, self._ends = tap, begins, ends
        self._relevance, self._predictions, self._readable = relevance, predictions, readable
        self._turn = turn_of(tap.model)
        self.heard = Heard()
        self._under_way: _UnderWay | None = None

    @contextmanager
    def open(self) -> Iterator[Heard]:
        """Listen until the block ends."""
        model, handles = self._tap.model, []
        with self._tap.listen(self):
            try:
                # Before those of anybody else, and after them.
                handles.append(nn.Module.register_forward_pre_hook(model, self._before, prepend=True, with_kwargs=True))
                handles.append(nn.Module.register_forward_hook(model, self._after))
                handles.append(nn.Module.register_forward_hook(model, self._at_last, always_call=True))
                yield self.heard
            finally:
                for handle in handles:
                    handle.remove()
                if self._under_way is not None and self._under_way.thread == get_ident():
                    self._drop()

    def miss(self, layer: str) -> None:
        """Count a call of a layer outside a pass, unless checkpoints run it once more for gradients."""
        if not (is_measured_pass() or runs_again() or is_recorded()):
            self.heard.outside[layer] = self.heard.outside.get(layer, 0) + 1

    def _before(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_measured_pass() or runs_again() or is_recorded() or not self._counts(model):
            # Made by another coverage of the same model, or a second time for gradients, it is none of the user's own.
            return
        self._turn.acquire()
        caller = _calling_frame()
        if self._under_way is not None:
            if self._under_way.is_around(caller):
                self._under_way.depth += 1
                return
            # An interruption, for which torch calls no hook, ended it.
            self._drop()
        self._under_way = under_way = _UnderWay(caller)
        try:
            with plain_arithmetic():
                self._begins()
                _refuse_transforms()
                inputs, under_way.labels = given(args, kwargs, form_of(model))
                inputs, batch = self._counted(model, args, inputs)
                under_way.forward_pass = self._tap.begin(inputs, batch, relevance=self._relevance)
        except Exception as error:
            # The model may refuse these inputs itself, which comes first.
            under_way.problem = error

    def _counted(self, model: nn.Module, args: tuple[Any, ...], inputs: Any) -> tuple[Any, int | str | None]:
        """Return the inputs, and what tells their number where somebody said it."""
        if not isinstance(self._batch, str):
            return inputs, None if self._batch is None else self._batch(inputs)
        return (inputs if isinstance(inputs, Mapping) else form_of(model).arguments(args, {})), self._batch

    def _after(self, model: nn.Module, args: Any, output: Any) -> None:
        under_way = self._under_way
        if under_way is None or under_way.depth or not self._is_ours(under_way):
            return
        self._tap.stop()
        under_way.ended = True
        forward_pass, heard = under_way.forward_pass, self.heard
        problem = under_way.problem or (None if forward_pass is None else forward_pass.problem)
        if problem is not None:
            raise problem
        assert forward_pass is not None
        heard.passes += 1
        heard.training += model.training
        if not forward_pass.layers and not forward_pass.unread:
            heard.empty += 1
            return
        with plain_arithmetic():
            found = self._tap.read(forward_pass, output, predictions=self._predictions, readable=self._readable)
            for layer in self._tap.chosen:
                if layer not in forward_pass.calls and layer not in self._tap.known_rows.left_out:
                    heard.skipped[layer] = heard.skipped.get(layer, 0) + 1
            heard.inputs += found.size
            self._ends(found, under_way.labels, forward_pass.rows)

    def _at_last(self, model: nn.Module, args: Any, output: Any) -> None:
        under_way = self._under_way
        if under_way is None or not self._is_ours(under_way):
            return
        if under_way.depth:
            under_way.depth -= 1
            self._turn.release()
            return
        self.heard.failed += not under_way.ended
        self._drop()

    def _is_ours(self, under_way: _UnderWay) -> bool:
        """Return whether a hook fires for the pass under way, and not for one of another thread or coverage."""
        return under_way.thread == get_ident() and not is_measured_pass()

    def _drop(self) -> None:
        """Forget the pass under way."""
        under_way, self._under_way = self._under_way, None
        self._tap.stop()
        for _ in range(1 + (0 if under_way is None else under_way.depth)):
            self._turn.release()


def _refuse_transforms() -> None:
    """Refuse a call within ``vmap``, ``grad`` and the like, in which tensors hide their batch or their numbers."""
    if within_transform():
        raise InputError(
            "the model was called within a transform of torch.func (vmap, grad, jvp, …), which hides numbers of its "
            "layers: listen to a plain call of it on the same inputs"
        )


def _calling_frame() -> FrameType:
    """Return the frame of the model's call whose hook is running, past decorators of the hook."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _MODULE_FILE:
        frame = frame.f_back
    return frame or sys._getframe(1)


@dataclass(eq=False)
class _UnderWay:
    """Hold one call of the model while it runs; ``depth`` counts calls of itself within it."""

    caller: FrameType
    thread: int = field(default_factory=get_ident)
    depth: int = 0
    labels: Any = None
    forward_pass: ForwardPass | None = None
    problem: Exception | None = None
    ended: bool = False

    def is_around(self, frame: FrameType | None) -> bool:
        """Return whether a frame was called by the call that is under way."""
        while frame is not None:
            if frame is self.caller:
                return True
            frame = frame.f_back
        return False


def given(args: tuple[Any, ...], kwargs: dict[str, Any], form: Form) -> tuple[Any, Any]:
    """Return the inputs of a call as a loader would have given them, and the labels among them, if any.

    >>> given((), {"x": 1, "labels": 2}, Form())
    ({'x': 1}, 2)
    """
    if not kwargs and "labels" not in form.positional[1 : len(args)]:
        single = len(args) == 1 and isinstance(args[0], (Tensor, PackedSequence))
        return (args[0] if single else args), None
    named = form.arguments(args, kwargs)
    unnamed = args[len(form.positional) :]
    inputs = {name: value for name, value in named.items() if name != "labels"}
    return {**inputs, **{f"*{place}": value for place, value in enumerate(unnamed)}}, named.get("labels")


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Compute without gradients and in full precision, whatever the pass that is heard does."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield

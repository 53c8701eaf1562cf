"""The tape: which torch function made which tensor of which, kept while a model runs, for relevance to go back along.

It listens to the model's own forward pass at the level of torch functions, where ``nn.ReLU``,
``functional.relu`` and ``Tensor.relu_`` are one thing, so nothing is traced or copied and whatever the model
does in Python is simply done. It starts at the chosen layers: what only leads up to them is not kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from neuralcov.core.trees import tensors
from neuralcov.tap.layers import named_layers

# What may be folded into a layer: outputs are multiplied by a scale and shifted, feature by feature.
ScaleShift = tuple[Tensor, Tensor]


@dataclass(eq=False)
class Spot:
    """A tensor on the tape, and the relevance that has come back to it.

    Relevance that came through a batch norm stands beside the scale and shift to fold into the layer here.
    """

    step: Operation
    shape: torch.Size
    device: torch.device
    arrived: list[tuple[Tensor, ScaleShift | None]] = field(default_factory=list)

    def receive(self, relevance: Tensor, affine: ScaleShift | None = None) -> None:
        """Take relevance in; what came through no batch norm adds up."""
        for index, (part, other) in enumerate(self.arrived):
            if affine is None and other is None:
                self.arrived[index] = (part + relevance, None)
                return
        self.arrived.append((relevance, affine))

    def relevance(self) -> Tensor | None:
        """Return all relevance that has arrived, or ``None`` if none has."""
        total = None
        for part, _ in self.arrived:
            total = part if total is None else total + part
        return total


@dataclass(eq=False)
class Held:
    """A tensor a step was given: where it was made, and its value unless the step's rule can do without."""

    spot: Spot
    value: Tensor | None


@dataclass(eq=False)
class Operation:
    """One call of a torch function. ``args`` and ``kwargs`` have ``Held`` in place of tensors on the tape."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[Held, ...]
    weighted: bool = False
    where: str = ""
    outputs: list[Spot] = field(default_factory=list)

    def argument(self, position: int, name: str) -> Any:
        """Return an argument, however it was passed; ``None`` if it was not."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    def forget(self) -> None:
        """Let go of everything that relevance no longer needs once it has passed."""
        self.args, self.kwargs, self.inputs = (), {}, ()
        for spot in self.outputs:
            spot.arrived.clear()


class Tape(TorchFunctionMode):
    """Listens to a model from its chosen layers on.

    Args:
        model: the model that will run, to name its modules in messages.
        weighted: functions that multiply by weights, into which a batch norm behind them is folded.
        valueless: functions whose rules need the shapes of what they are given, not the values.
        constant: functions whose results do not depend on the values they are given, such as ``zeros_like``.
    """

    def __init__(
        self, model: nn.Module, *, weighted: Collection[str], valueless: Collection[str], constant: Collection[str]
    ) -> None:
        super().__init__()
        self.steps: list[Operation] = []
        self.layers: dict[str, Spot] = {}
        self._names = {module: name for name, module in named_layers(model).items()}
        self._weighted, self._valueless, self._constant = weighted, valueless, constant
        # Weak, so that feature maps no step needs the value of are freed as in any forward pass.
        self._spots: Any = WeakTensorKeyDictionary()
        self._held: dict[int, list[Held]] = {}
        self._paused = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run ``func``, and keep the step if it works on something that is on the tape."""
        kwargs = kwargs or {}
        given = list(tensors((args, kwargs)))
        if self._paused or not any(tensor in self._spots for tensor in given):
            return func(*args, **kwargs)
        name, overwrites = _plain_name(func, args, kwargs)
        if overwrites:
            step = self._step(name, func, args, kwargs)
            self._copy_what_is_held(given[0])
            result = func(*args, **kwargs)
            self._add(step, [given[0]] if name == "__setitem__" else _floats(result))
            return result
        result = func(*args, **kwargs)
        made = _floats(result)
        # Dropout in eval mode, contiguous and the like give back what they were given: no step.
        if made and name not in self._constant and not any(tensor is other for tensor in made for other in given):
            self._add(self._step(name, func, args, kwargs), made)
        return result

    def mark(self, layer: str, output: Tensor, *, weighted: bool) -> None:
        """Note that ``output``, as it is now, is what a chosen layer gave, and whether that multiplies by weights."""
        if output not in self._spots:
            self._add(Operation("layer", _not_followed, (), {}, (), weighted), [output])
        self.layers[layer] = self._spots[output]

    def spot(self, tensor: Tensor) -> Spot | None:
        """Return where a tensor stands on the tape, if it does."""
        found: Spot | None = self._spots.get(tensor)
        return found

    def clear(self) -> None:
        """Free everything at once: steps and spots refer to each other and would wait for the garbage collector."""
        for step in self.steps:
            step.forget()
        self.steps.clear()
        self._held.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep nothing within: what is done to a layer's output there is not the model's doing."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def _step(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Operation:
        inputs: list[Held] = []

        def hold(tensor: Tensor) -> Any:
            spot = self._spots.get(tensor)
            if spot is None:
                return tensor
            # A batch norm right behind a layer is folded into it.
            folded = name == "batch_norm" and spot.step.weighted
            held = Held(spot, None if folded or name in self._valueless else tensor)
            inputs.append(held)
            if held.value is not None:
                self._held.setdefault(_storage(tensor), []).append(held)
            return held

        kept_args, kept_kwargs = swap((args, kwargs), Tensor, hold)
        # A function that works in place is replayed by its namesake that does not.
        function = getattr(Tensor, name) if func.__name__ == f"{name}_" else func
        weighted = name in self._weighted
        return Operation(name, function, kept_args, kept_kwargs, tuple(inputs), weighted, self._running_module())

    def _add(self, step: Operation, made: list[Tensor]) -> None:
        for tensor in made:
            self._spots[tensor] = spot = Spot(step, tensor.shape, tensor.device)
            step.outputs.append(spot)
        self.steps.append(step)

    def _copy_what_is_held(self, tensor: Tensor) -> None:
        """Keep the value of a tensor that may be about to be overwritten and that steps on the tape need."""
        for held in self._held.pop(_storage(tensor), ()):
            assert held.value is not None
            held.value = held.value.clone()

    def _running_module(self) -> str:
        """Return the innermost module of the model that is running, as a person would look for it."""
        frame = sys._getframe()
        while frame.f_back is not None:
            frame = frame.f_back
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and owner in self._names:
                return f"module {self._names[owner]!r} ({type(owner).__name__})"
        return "the model"


def swap(tree: Any, kind: type | tuple[type, ...], change: Callable[[Any], Any]) -> Any:
    """Return the same structure with ``change`` applied to every part of a ``kind``."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: swap(part, kind, change) for key, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        parts = [swap(part, kind, change) for part in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    return tree


def _floats(tree: Any) -> list[Tensor]:
    return [tensor for tensor in tensors(tree) if tensor.is_floating_point()]


def _plain_name(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a function's name without the mark of working in place, and whether it may overwrite what it is given."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        # A property, such as x.mT; its own name is what tells.
        return getattr(getattr(func, "__self__", None), "__name__", name), False
    if kwargs.get("out") is not None:
        return f"{name} with out=", True
    if name.endswith("_") and not name.endswith("__"):
        return name[:-1], True
    # relu(x, True) works in place; that another function's True means something else costs a copy, no more.
    python = getattr(func, "__module__", None) == "torch.nn.functional"
    flagged = bool(kwargs.get("inplace")) or (python and any(part is True for part in args))
    return name, flagged or name == "__setitem__"


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _not_followed(*_: Any) -> Any:
    raise AssertionError("what leads up to the first layers is not on the tape")

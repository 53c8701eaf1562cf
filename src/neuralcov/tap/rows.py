"""Which rows of a layer's output belong to which input: found by running a model on three inputs, then on two of them.

An output of shape (8, 24, 16) does not say which axis is the batch, nor one of 48 rows for 24 inputs whether rows 0 and
1 or rows 0 and 24 belong to the first of them. Two runs say it. The axis that is the batch's has 3k rows in one run and
2k in the other, and a row of the smaller run reappears in the larger one, at the place that the order of rows says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from neuralcov.core.activations import statistics_device
from neuralcov.core.errors import LayerError
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.tap.axes import OutputAxes, feature_axis
from neuralcov.tap.inputs import first_tensor

Rows: TypeAlias = "Callable[[str, Tensor], Any]"
IN_PLACE, INPUT_MAJOR, INPUT_MINOR = "in place", "input-major", "input-minor"
# Several orders fit: the rows looked at are too much alike to tell.
UNDECIDED = "undecided"
# Rows of the smaller run that are looked up in the larger one; evenly spaced where there are more.
_MOST_ROWS = 256


@dataclass(frozen=True)
class RowOrder:
    """Where a layer's output has its rows, and in which order.

    Args:
        axis: the axis along which rows lie.
        order: ``in place`` for one row per input, ``input-major`` if an input's rows are neighbours, ``input-minor`` if
            the first rows of all inputs come first; ``undecided`` is read as ``input-major``.
        per_input: k, rows of each input when the order was found.
    """

    axis: int
    order: str = IN_PLACE
    per_input: int = 1

    def __str__(self) -> str:
        return f"{self.order} on axis {self.axis}"

    def agrees_with(self, other: RowOrder) -> bool:
        """Return whether outputs can follow both orders; one row per input lies in place in every order."""
        return self.axis == other.axis and (
            self.order == other.order or bool({IN_PLACE, UNDECIDED} & {self.order, other.order})
        )

    def rows_per_input(self, shape: Sequence[int], size: int) -> int | None:
        """Return k for an output of this shape, ``None`` if it cannot follow this order."""
        if self.axis >= len(shape) or not size or shape[self.axis] % size or not shape[self.axis]:
            return None
        per_input = shape[self.axis] // size
        return None if per_input > 1 and self.order == IN_PLACE else per_input


@dataclass(frozen=True, eq=False)
class Note:
    """What one run of the probe keeps of a layer's output.

    Args:
        shape: that of the output.
        profiles: axis → one row of features per row along that axis, everything else averaged.
        width: the number of features.
        settled: the order that the module itself tells, where it does.
        noise: how far two runs may differ by rounding, relative to the largest number.
    """

    shape: tuple[int, ...]
    profiles: dict[int, Float[Tensor, "_ _"]]
    width: int
    settled: RowOrder | None
    noise: float


def own_rows(output: Any, size: int) -> Any:
    """Return the part of an output that belongs to this rank's inputs, where every rank was given its own."""
    if not hasattr(output, "to_local") or output.shape[0] == size:
        return output
    local = output.to_local()
    return local if local.shape[0] == size else output


def note(output: Any, kind: OutputAxes, size: int) -> Note | None:
    """Keep of an output for ``size`` inputs what tells its order of rows; ``None`` without a tensor."""
    tensor = first_tensor(output)
    if tensor is None:
        return None
    shape = tuple(tensor.shape)
    if kind.recurrent and isinstance(output[0], PackedSequence):
        return Note((size, *shape), {}, shape[-1], RowOrder(0), 0.0)
    width = shape[feature_axis(tensor.shape, kind)] if tensor.dim() > 1 else 1
    if tensor.is_complex() or tensor.dim() == 0:
        # Refused with a sentence of its own where it is measured.
        return Note(shape, {}, width, RowOrder(0), 0.0)
    axis = kind.batch_axis
    if axis is not None and len(shape) == 3 and shape[axis] == size:
        return Note(shape, {}, width, RowOrder(axis), 0.0)
    if kind.recurrent:
        return Note(shape, {}, width, None, 0.0)
    return Note(shape, _profiles(tensor, kind, size), width, None, _noise(tensor))


def find_order(larger: Note | None, smaller: Note | None, sizes: tuple[int, int]) -> RowOrder | str:
    """Return the order of rows that two runs show, or why they show none.

    Args:
        larger: of the run on more inputs, ``None`` if the layer did not fire there.
        smaller: of the run on fewer.
        sizes: how many inputs these were.
    """
    if larger is None or smaller is None:
        return "it does not fire in every pass"
    if larger.settled is not None and larger.settled == smaller.settled:
        return larger.settled
    many, few = sizes
    following = [
        axis
        for axis in set(larger.profiles) & set(smaller.profiles)
        if larger.shape[axis] * few == smaller.shape[axis] * many
    ]
    if len(larger.shape) != len(smaller.shape) or not following:
        return "no axis follows the batch"
    if len(following) > 1:
        return "two axes follow the batch"
    (axis,) = following
    per_input = larger.shape[axis] // many
    rows = torch.arange(per_input * few)
    spots = {INPUT_MAJOR: rows, INPUT_MINOR: rows // few * many + rows % few}
    if per_input == 1:
        spots = {IN_PLACE: rows}
    pair = larger.profiles[axis], smaller.profiles[axis]
    fitting = [order for order, named in spots.items() if _fits(*pair, named, larger.noise)]
    if not fitting:
        return "its rows are in no known order"
    if len(fitting) > 1:
        # Rows that differ by little more than rounding may still tell.
        fitting = [order for order in fitting if _fits(*pair, spots[order], larger.noise / 8)] or fitting
    return RowOrder(axis, fitting[0] if len(fitting) == 1 else UNDECIDED, per_input)


def only_order(shape: Sequence[int], size: int, kind: OutputAxes) -> RowOrder | None:
    """Return the one order that a shape allows, ``None`` if it leaves a choice."""
    if kind.batch_axis is not None and len(shape) == 3 and shape[kind.batch_axis] == size:
        return RowOrder(kind.batch_axis)
    possible = _possible_axes(shape, size, kind)
    return RowOrder(possible[0]) if len(possible) == 1 and shape[possible[0]] == size else None


def order_by_shape(shape: Sequence[int], size: int, kind: OutputAxes, layer: str, because: str = "") -> RowOrder:
    """Return the order of an output for which none was found: that of the shape, if it leaves no choice.

    All rows for a single input are its own, in whatever order.

    Args:
        shape: of the output.
        size: B, the number of inputs.
        kind: how the module lays its output out.
        layer: the layer's name, for messages.
        because: why none was found, if it was looked for.
    """
    order = only_order(shape, max(size, 1), kind)
    if order is None and size <= 1:
        return RowOrder(0, INPUT_MAJOR)
    if order is None:
        advice = "call cov.probe(inputs) first, " if not because else ""
        raise LayerError(
            f"layer {layer!r} gave shape {tuple(shape)} for a batch of {size}, which leaves open which rows belong to "
            f"which input{because}: {advice}leave it out with layers={without([layer])!r}, or pass rows="
        )
    return order


def likely_order(shape: Sequence[int], size: int, kind: OutputAxes, *, axis: int | None = None) -> RowOrder | None:
    """Return the order of an output where the model cannot be asked; ``None`` if too much is left open.

    That of the shape, if it leaves no choice. Otherwise, if the axis is as long as the batch, that one: where it is
    axis 0, another may be that long, or a multiple of it, by chance, but hardly axis 0 as well.

    Args:
        shape: of the output.
        size: B, the number of inputs.
        kind: how the module lays its output out.
        axis: where the batch is expected, ``None`` if it may as well come second.
    """
    order = only_order(shape, max(size, 1), kind)
    if order is None and size <= 1:
        return RowOrder(0, INPUT_MAJOR)
    if order is None and axis is not None and axis < len(shape) and shape[axis] == size:
        return RowOrder(axis)
    if order is None and kind.tokens_in_order and shape[0] and shape[0] % size == 0:
        return RowOrder(0, INPUT_MAJOR, shape[0] // size)
    return order


def with_batch_first(
    output: Tensor, size: int, kind: OutputAxes, layer: str, order: RowOrder | None = None
) -> tuple[Tensor, bool]:
    """Return the output with its batch on axis 0, and whether that took folding (B·k) into (B, k)."""
    if order is not None and order.axis == 0 and output.shape[0] == size:
        return output, False
    if order is None:
        order = order_by_shape(output.shape, size, kind, layer)
    rows = output.movedim(order.axis, 0) if order.axis else output
    per_input = order.rows_per_input(output.shape, size)
    if per_input == 1 or size == 0:
        return rows if size else rows[:0], False
    if per_input is None:
        raise LayerError(
            f"layer {layer!r} gave shape {tuple(output.shape)} for a batch of {size}, although its rows were found "
            f"{order}: leave it out with layers={without([layer])!r}, or pass rows="
        )
    if output.dim() == 1:
        rows = rows[:, None]
    if order.order == INPUT_MINOR:
        return rows.reshape(per_input, size, *rows.shape[1:]).transpose(0, 1), True
    return rows.reshape(size, per_input, *rows.shape[1:]), True


def without(layers: Iterable[str], choice: object = None) -> str:
    """Return the text for ``layers=`` that leaves some layers out of a choice.

    >>> without(["a.fc", "a.fc#1", "b"]), without(["b"], "a*|b")
    ('!a.fc|!b', 'a*|b|!b')
    """
    names = dict.fromkeys(layer.partition("#")[0].partition("[")[0] for layer in layers)
    return "|".join([*([choice] if isinstance(choice, str) else []), *(f"!{name}" for name in names)])


def by_owner(
    output: Tensor, owners: Int[Tensor, "rows"], size: int, kind: OutputAxes, *, total: bool = False
) -> tuple[Float[Tensor, "batch neurons"], Bool[Tensor, "batch"]]:
    """Average each input's rows along axis 0, and tell which inputs have any.

    Args:
        output: what the module returned.
        owners: the input that each row belongs to, -1 for none.
        size: B, the number of inputs.
        kind: how the module lays its output out.
        total: sum instead, as for relevance.
    """
    dtype = torch.float64 if output.dtype == torch.float64 else torch.float32
    rows = (
        output.detach()[:, None] if output.dim() == 1 else output.detach().movedim(feature_axis(output.shape, kind), -1)
    )
    if rows.dim() > 2:
        between = tuple(range(1, rows.dim() - 1))
        rows = rows.sum(between, dtype=dtype) if total else rows.mean(between, dtype=dtype)
    # One more input collects the rows that belong to none.
    places = torch.where(owners < 0, size, owners)
    sums = torch.zeros(size + 1, rows.shape[1], dtype=dtype, device=rows.device).index_add_(0, places, rows.to(dtype))
    counts = torch.zeros(size + 1, dtype=dtype, device=rows.device).index_add_(
        0, places, rows.new_ones(len(rows), dtype=dtype)
    )
    present = counts[:size] > 0
    return (sums[:size] if total else sums[:size] / counts[:size, None].clamp(min=1)), present


def checked_owners(owners: Any, output: Tensor, size: int, layer: str) -> Int[Tensor, "rows"]:
    """Return what a user's ``rows`` returned, as one integer per row of axis 0."""
    tensor = torch.as_tensor(owners)
    count = output.shape[0] if output.dim() else 0
    if tensor.shape != (count,) or tensor.is_floating_point() or tensor.is_complex():
        raise LayerError(
            f"rows= returned type {tensor.dtype} and shape {tuple(tensor.shape)} for layer {layer!r}: expected {count} "
            f"integers, the input of each row of its output of shape {tuple(output.shape)}, -1 for none"
        )
    inside = ((tensor >= -1) & (tensor < size)).all()
    if tensor.device.type == "cpu" and not bool(inside):
        raise LayerError(
            f"rows= returned inputs from {int(tensor.min())} to {int(tensor.max())} for layer {layer!r}: expected "
            f"-1 to {size - 1} in a batch of {size}"
        )
    if tensor.device.type == "cuda":
        torch._assert_async(inside)  # looking at it would stall the queue
    return tensor.to(output.device, torch.int64)


def _profiles(tensor: Tensor, kind: OutputAxes, size: int) -> dict[int, Float[Tensor, "_ _"]]:
    """Return axis → the rows along it, for axes that may be the batch's."""
    features = feature_axis(tensor.shape, kind) if tensor.dim() > 1 else None
    plain = tensor.detach().to(statistics_device(tensor.device))
    profiles = {}
    for axis in _possible_axes(tensor.shape, size, kind):
        others = [other for other in range(tensor.dim()) if other not in (axis, features)]
        rows = plain.mean(others, dtype=torch.float64) if others else plain.to(torch.float64)
        profiles[axis] = rows if features is not None else rows[:, None]
    return profiles


def _possible_axes(shape: Sequence[int], size: int, kind: OutputAxes) -> list[int]:
    """Return the axes that may be the batch's by their length: the first before space, else all but features."""
    channels_first = len(shape) > 1 and feature_axis(shape, kind) == 1 < len(shape) - 1
    axes = range(1 if channels_first else max(1, len(shape) - 1))
    return [axis for axis in axes if shape[axis] and shape[axis] % size == 0]


def _noise(tensor: Tensor) -> float:
    """Return how far a number may move when a batch is cut, relative to the largest: some units in the last place."""
    if not tensor.is_floating_point():
        return 0.0
    unit = torch.finfo(tensor.dtype).eps
    if unit > 1e-4:
        return 8 * unit
    # A GPU may multiply float32 numbers as TF32, and in another way for another batch size.
    return 1e-3 if tensor.device.type == "cuda" and unit > 1e-10 else 64 * unit


def _fits(larger: Tensor, smaller: Tensor, named: Int[Tensor, "rows"], noise: float) -> bool:
    """Return whether every row of the smaller run has the row named as its nearest in the larger run; ties fit."""
    if len(smaller) > _MOST_ROWS:
        some = torch.linspace(0, len(smaller) - 1, _MOST_ROWS, device=smaller.device).round().long()
        smaller, named = smaller[some], named[some.to(named.device)]
    larger, smaller = larger.nan_to_num(), smaller.nan_to_num()
    deviation = larger.std(0, correction=0)
    scale = torch.where(deviation > 0, 1 / deviation, 0)
    centre = larger.mean(0)
    distances = torch.cdist(
        (smaller - centre) * scale, (larger - centre) * scale, compute_mode="donot_use_mm_for_euclid_dist"
    )
    slack = noise * torch.linalg.vector_norm(larger.abs().amax(0) * scale)
    of_named = distances.gather(1, named.to(distances.device)[:, None])[:, 0]
    return bool((of_named <= distances.amin(1) + slack).all())

"""How many inputs a batch holds, which of its tensors have one row per input, and what a part of it looks like."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

from neuralcov.core.digests import content_keys
from neuralcov.core.errors import InputError
from neuralcov.core.shapes import Int
from neuralcov.tap.inputs import batch_size, first_tensor, is_list_of_inputs
from neuralcov.tap.signatures import Form

_CHANNELS = (1, 3, 4)
# Which tokens may look at which, for all inputs alike: (tokens, tokens).
_ATTENTION_MASKS = frozenset({"mask", "src_mask", "tgt_mask", "memory_mask", "attn_mask"})
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@dataclass(frozen=True, eq=False)
class Members:
    """A batch as a number of inputs.

    Args:
        inputs: a tensor, a packed sequence, a tuple of arguments or a mapping of keyword arguments.
        size: B, the number of inputs.
        batch_axis: the axis of tensors along which inputs lie.
        listed: the inputs are elements of a list, not rows of a tensor.
        shared: identities of tensors that serve all inputs though their shape might be taken for rows.
    """

    inputs: Any
    size: int
    batch_axis: int = 0
    listed: bool = False
    shared: frozenset[int] = frozenset()

    @classmethod
    def of(cls, inputs: Any, batch_axis: int = 0, batch: int | str | None = None, form: Form | None = None) -> Members:
        """Count the inputs of a batch, and refuse one whose tensors disagree about the number.

        Args:
            inputs: see the class.
            batch_axis: see the class.
            batch: the number of inputs, or the name of the tensor with one row per input, where somebody said so.
            form: what the model can be called with, which names arguments that are given by position.
        """
        if isinstance(inputs, Tensor) and batch is None:
            return cls(inputs, batch_size(inputs, batch_axis), batch_axis)
        first = _first_argument(inputs, batch)
        size = batch if isinstance(batch, int) else batch_size((first,), batch_axis)
        listed = is_list_of_inputs(first) and len(first) == size
        members = cls(inputs, size, batch_axis, listed, _attention_masks(inputs, form))
        if batch is None and not listed:
            members._refuse_disagreement()
        return members

    def axis_of(self, tensor: Tensor) -> int | None:
        """Return the axis of a tensor along which it has one row per input, ``None`` if it serves all of them."""
        shape, axis = tensor.shape, self.batch_axis
        if tensor.dim() == 0 or id(tensor) in self.shared:
            return None
        # Besides a batch that comes second there are masks and lengths in which it comes first.
        if -len(shape) <= axis < len(shape) and shape[axis] == self.size:
            return axis % len(shape)
        if shape[0] == self.size:
            return 0
        # The state that a recurrent layer starts from: (layers, batch, features).
        return 1 if len(shape) == 3 and shape[1] == self.size else None

    def only_tensors(self) -> bool:
        """Return whether the inputs consist of tensors and plain values, which can be copied, and of nothing else."""
        return all(isinstance(leaf, _PLAIN) or is_plain(leaf) for leaf in leaves_of(self.inputs))

    def axes(self) -> tuple[int, ...]:
        """Return the lengths of all other axes than the batch's, over all tensors."""
        return tuple(
            length
            for tensor in leaves_of(self.inputs)
            if isinstance(tensor, Tensor)
            for axis, length in enumerate(tensor.shape)
            if axis != self.axis_of(tensor)
        )

    def unlike(self) -> list[int] | None:
        """Return two or three inputs of unlike lengths, the longest first; ``None`` if none are known to be.

        Lengths are those of packed sequences, numbers that come one per input, and tokens counted by masks. Waits for
        the device if there are any.
        """
        if isinstance(self.inputs, Tensor):
            return None
        for leaf in leaves_of(self.inputs):
            lengths = self._lengths(leaf)
            if lengths is not None and len(set(lengths)) > 1:
                rows = sorted(range(self.size), key=lengths.__getitem__, reverse=True)
                return [rows[0], *rows[1:-1][:1], rows[-1]]
        return None

    def _lengths(self, leaf: Any) -> list[float] | None:
        if isinstance(leaf, PackedSequence):
            return pad_packed_sequence(leaf)[1].tolist()
        if not isinstance(leaf, Tensor) or leaf.dim() not in (1, 2) or self.axis_of(leaf) != 0 or leaf.is_complex():
            return None
        if leaf.dim() == 1:
            return leaf.tolist()
        whole = not leaf.is_floating_point()
        return leaf.sum(1).tolist() if whole and bool(((leaf == 0) | (leaf == 1)).all()) else None

    def take(self, rows: Sequence[int]) -> Any:
        """Copy some of the inputs, in the structure of all of them."""
        if isinstance(self.inputs, tuple) and not isinstance(self.inputs, PackedSequence):
            return tuple(self._taken(part, rows) for part in self.inputs)
        if isinstance(self.inputs, Mapping):
            return {name: self._taken(part, rows) for name, part in self.inputs.items()}
        return self._taken(self.inputs, rows)

    def _taken(self, value: Any, rows: Sequence[int]) -> Any:
        if isinstance(value, PackedSequence):
            return _part_of_packed(value, rows)
        if isinstance(value, Tensor):
            axis = self.axis_of(value)
            return value.clone() if axis is None else value.index_select(axis, torch.tensor(rows, device=value.device))
        if self.listed and isinstance(value, (list, tuple)) and len(value) == self.size:
            return type(value)(_copied(value[row]) for row in rows)
        if isinstance(value, Mapping):
            return {name: self._taken(part, rows) for name, part in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._taken(part, rows) for part in value))
        if isinstance(value, (list, tuple)):
            return type(value)(self._taken(part, rows) for part in value)
        return value

    def keys(self) -> Int[Tensor, "batch 2"] | None:
        """Return 128-bit keys of the inputs' bytes, without waiting for the device; ``None`` where there are none."""
        inputs = self.inputs
        if isinstance(inputs, Tensor) and not self.batch_axis and self.size and is_plain(inputs):
            return content_keys([inputs])
        rows: list[Tensor] = []
        if isinstance(inputs, Mapping):
            # The order in which somebody named them says nothing about the inputs.
            inputs = {name: inputs[name] for name in sorted(inputs, key=str)}
        for argument in _arguments(inputs):
            if self.listed and isinstance(argument, (list, tuple)) and len(argument) == self.size:
                listed = _padded(argument)
                if listed is not None:
                    rows.append(listed)
                continue
            for leaf in leaves_of(argument):
                if isinstance(leaf, PackedSequence) or (isinstance(leaf, Tensor) and not is_plain(leaf)):
                    return None
                if isinstance(leaf, Tensor) and (axis := self.axis_of(leaf)) is not None:
                    rows.append(leaf.movedim(axis, 0) if axis else leaf)
        if not rows or self.size == 0:
            return None
        home = rows[0].device
        return content_keys([part if part.device == home else part.to(home) for part in rows])

    def _refuse_disagreement(self) -> None:
        """Refuse tensors without one row per input, but for those that cannot be meant to have one."""
        first = first_tensor(self.inputs, axes=1)
        assert first is not None
        for name, tensor in _named(self.inputs):
            if tensor is first or self.axis_of(tensor) is not None or tensor.dim() == 0 or tensor.shape[0] == 1:
                continue
            # Positions, and masks of tokens by tokens, are the same for all inputs.
            if tensor.dim() <= 2 and all(length in first.shape for length in tensor.shape):
                continue
            raise InputError(
                f"inputs of shapes {tuple(first.shape)} and {tuple(tensor.shape)}{name} have different numbers of "
                "rows: set batch_axis=, let unpack= return (inputs, labels, batch), or pass listen(batch=), with the "
                "number of inputs or the name of the tensor with one row per input"
            )


def as_arguments(model: nn.Module, inputs: Any) -> Any:
    """Return inputs whose list or tuple, if they are one, is either several arguments of the model or its one argument.

    It is one argument if the model requires no second one and it is a list of images (tensors of three axes), a tuple
    of images with 1, 3 or 4 channels, or longer than the model has arguments.
    """
    if isinstance(inputs, PackedSequence) or not isinstance(inputs, (list, tuple)):
        return inputs
    required, most = _positional(model)
    images = required <= 1 and is_list_of_inputs(inputs) and all(part.ndim == 3 for part in inputs)
    known = isinstance(inputs, list) or len(inputs) > most
    if images and (known or all(part.shape[0] in _CHANNELS for part in inputs)):
        return (inputs,)
    return (inputs,) if isinstance(inputs, list) and required <= 1 and len(inputs) > most else tuple(inputs)


def _positional(model: nn.Module) -> tuple[int, float]:
    """Return how many positional arguments a model requires, and how many it takes."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return 1, float("inf")
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    any_number = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    return sum(p.default is p.empty for p in placed), float("inf") if any_number else len(placed)


def _attention_masks(inputs: Any, form: Form | None) -> frozenset[int]:
    """Find square masks of attention, whose rows are tokens, not inputs."""
    named: Mapping[Any, Any] = inputs if isinstance(inputs, Mapping) else {}
    if isinstance(inputs, tuple) and not isinstance(inputs, PackedSequence) and form is not None:
        named = form.arguments(inputs, {})
    return frozenset(
        id(value)
        for name, value in named.items()
        if name in _ATTENTION_MASKS and isinstance(value, Tensor) and value.dim() == 2 and len(set(value.shape)) == 1
    )


def _first_argument(inputs: Any, batch: int | str | None) -> Any:
    """Return the argument that has one row per input: the one named, or the first with a tensor."""
    if (
        isinstance(batch, bool)
        or not isinstance(batch, (int, str, type(None)))
        or (isinstance(batch, int) and batch < 0)
    ):
        raise InputError(
            f"unpack= returned the batch {batch!r}: expected the number of inputs or the name of a tensor among them"
        )
    if isinstance(batch, str):
        if not isinstance(inputs, Mapping) or batch not in inputs:
            there = ", ".join(map(repr, inputs)) if isinstance(inputs, Mapping) else "no names at all"
            raise InputError(f"unpack= returned the batch {batch!r}, but the inputs have {there}")
        return inputs[batch]
    for argument in _arguments(inputs):
        if first_tensor(argument, axes=1) is not None:
            return argument
    return inputs


def _arguments(inputs: Any) -> Sequence[Any]:
    if isinstance(inputs, Mapping):
        return list(inputs.values())
    return inputs if isinstance(inputs, tuple) and not isinstance(inputs, PackedSequence) else (inputs,)


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield everything in nested inputs that holds no further parts."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)) and not isinstance(value, PackedSequence):
        for part in value:
            yield from leaves_of(part)
    else:
        yield value


def _named(inputs: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield tensors of the inputs, with a name for messages where they have one."""
    named = {f" ({name!r})": part for name, part in inputs.items()} if isinstance(inputs, Mapping) else {"": inputs}
    for name, part in named.items():
        for leaf in leaves_of(part):
            if isinstance(leaf, Tensor):
                yield name, leaf


def is_plain(leaf: Any) -> bool:
    """Return whether a leaf is a tensor whose numbers lie in rows, or a packed sequence."""
    if not isinstance(leaf, Tensor):
        return isinstance(leaf, PackedSequence)
    return leaf.layout == torch.strided and not leaf.is_nested and not leaf.is_quantized


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {name: _copied(part) for name, part in value.items()}
    return type(value)(_copied(part) for part in value) if isinstance(value, (list, tuple)) else value


def _part_of_packed(packed: PackedSequence, rows: Sequence[int]) -> PackedSequence:
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    some = list(rows)
    sorted_already = packed.sorted_indices is None and some == sorted(some)
    return pack_padded_sequence(padded[some], lengths[some], batch_first=True, enforce_sorted=sorted_already)


def _padded(images: Sequence[Any]) -> Tensor | None:
    """Return images of a list as rows of one tensor, zeros behind the smaller ones, which add nothing to their keys."""
    if not all(isinstance(image, Tensor) and is_plain(image) for image in images):
        return None
    return pad_sequence([image.detach().reshape(-1) for image in images], batch_first=True)

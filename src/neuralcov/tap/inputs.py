"""What a loader yields, taken apart into inputs for the model, labels, lengths and names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from neuralcov.core.errors import InputError
from neuralcov.core.input_names import checked_columns, checked_ids
from neuralcov.core.trees import tensors
from neuralcov.tap.names import split_names
from neuralcov.tap.signatures import Form, form_of

Inputs: TypeAlias = "Tensor | PackedSequence | tuple[Any, ...] | Mapping[str, Any]"
Unpack: TypeAlias = "Callable[[Any], tuple[Any, Any] | tuple[Any, Any, int | str | None] | Batch]"
Lengths: TypeAlias = "Callable[[Any], Any] | str"


@dataclass(frozen=True)
class Batch:
    """One batch, said part by part: a loader may yield it, ``unpack=`` return it, ``update`` and the like take it.

    Args:
        inputs: a tensor, a tuple of inputs or a mapping of keyword inputs.
        labels: one class per input, where known.
        lengths: time steps of each input, where shorter ones are padded.
        batch: the number of inputs, or the name of the tensor with one row per input, where tensors disagree.
        ids: one name per input, text or number; by default its position in the run.
        metadata: column → one value per input, such as ``{"weather": ["rain", "sun"]}``.
    """

    inputs: Any
    labels: Any = None
    lengths: Any = None
    batch: int | str | None = None
    ids: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def names(self, size: int) -> dict[str, Any]:
        """Return ids and metadata as activations keep them; refuse those that are not one per input."""
        if self.ids is None and not self.metadata:
            return {}
        return {"ids": checked_ids(self.ids, size), "metadata": checked_columns(self.metadata, size)}


def unpack_batch(
    item: Any,
    unpack: Unpack | None = None,
    *,
    two_inputs: bool = False,
    read_labels: Callable[[Any], Tensor | None] | None = None,
    form: Form | None = None,
    metadata: Collection[str] = (),
) -> Batch:
    """Take apart what a loader yields.

    A tensor is the input. Of a pair the second part is the label, or an input if the model requires two; a longer tuple
    is several inputs. A mapping is keyword inputs, with ``labels`` and names taken out, see ``split_names``. A
    ``Batch`` says it itself. ``unpack`` decides otherwise: it returns a ``Batch``, or inputs and labels, and
    where their tensors disagree the number of inputs or the name of the tensor with one row per input.

    Args:
        item: what the loader yields.
        unpack: takes it apart in place of these rules.
        two_inputs: whether the model requires two inputs, see ``requires_two_inputs``.
        read_labels: from labels as they come to a tensor; by default those that no criterion can use are left out.
        form: what the model can be called with.
        metadata: keys of mappings that hold metadata.
    """
    read_labels = read_labels or usable_labels
    if unpack is not None:
        item = unpack(item)
        if not isinstance(item, Batch):
            inputs, labels, batch = (*item, None)[:3]
            return Batch(inputs, read_labels(labels), batch=batch)
    if isinstance(item, Batch):
        return replace(item, labels=read_labels(item.labels))
    if isinstance(item, (Tensor, np.ndarray, PackedSequence)):
        return Batch(item)
    if isinstance(item, Mapping):
        rest, ids, columns = split_names(item, form or Form(any_keyword=True), metadata)
        return Batch(rest, read_labels(item.get("labels")), ids=ids, metadata=columns)
    if isinstance(item, (tuple, list)):
        parts = tuple(item)
        if len(parts) == 2 and not (two_inputs and _is_one_input(parts[0])):
            inputs = (parts[0],) if is_list_of_inputs(parts[0]) else parts[0]
            return Batch(inputs, read_labels(parts[1]))
        if len(parts) == 1:
            return Batch(parts[0])
        return Batch(parts)
    raise InputError(
        f"a batch of type {type(item).__name__}: expected a tensor, (inputs, labels), several inputs, a mapping or an "
        "nc.Batch; pass unpack= to take it apart"
    )


def with_lengths(batch: Batch, item: Any, lengths: Lengths, form: Form) -> Batch:
    """Return a batch with the length of each input.

    Args:
        batch: what was made of ``item``.
        item: what the loader yielded.
        lengths: from ``item`` to lengths, or the key under which it holds them. What lies under the key goes to the
            model only if that takes it.
        form: what the model can be called with.
    """
    if callable(lengths):
        return replace(batch, lengths=lengths(item))
    if not isinstance(lengths, str):
        raise InputError(f"lengths={lengths!r}: expected a function from a batch to lengths, or a mapping's key")
    if not isinstance(item, Mapping) or lengths not in item:
        held = f"keys {', '.join(map(str, item))}" if isinstance(item, Mapping) else f"type {type(item).__name__}"
        raise InputError(f"lengths={lengths!r} is no key of a batch of {held}: pass a function from a batch to lengths")
    inputs = batch.inputs
    if isinstance(inputs, Mapping) and not form.takes(lengths):
        inputs = {key: value for key, value in inputs.items() if key != lengths}
    return replace(batch, inputs=inputs, lengths=item[lengths])


def unused_part(item: Any, batch: Batch, form: Form) -> str | None:
    """Return what to say of a pair's second part that no criterion can use and that the model could have taken."""
    if not isinstance(item, (tuple, list)) or len(item) != 2 or batch.inputs is not item[0] or batch.labels is not None:
        return None
    second = item[1]
    if not isinstance(second, (Tensor, np.ndarray)) or len(form.positional) < 2:
        return None
    return (
        f"batches: the second part of a pair, of type {second.dtype} and shape {tuple(second.shape)}, was taken for a "
        f"target that no criterion uses, not for {form.positional[1]!r}, which the model can do without: pass unpack= "
        "to say which parts are inputs"
    )


def requires_two_inputs(model: nn.Module) -> bool:
    """Return whether a model's ``forward`` requires a second argument given by position.

    >>> requires_two_inputs(nn.Linear(1, 1)), requires_two_inputs(nn.Bilinear(1, 1, 1))
    (False, True)
    """
    return form_of(model).required >= 2


def _is_one_input(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, PackedSequence))


def usable_labels(labels: Any) -> Tensor | None:
    """Return labels that criteria can use: one whole number per input; ``None`` for targets of any other form."""
    if isinstance(labels, (tuple, list, range)):
        whole = bool(labels) and all(isinstance(label, (int, np.integer)) for label in labels)
        return torch.tensor(labels).long() if whole else None
    if not isinstance(labels, Tensor):
        array = np.asarray(labels) if hasattr(labels, "__array__") else None
        if array is None or array.dtype.kind not in "biu":
            return None
        labels = torch.as_tensor(array)
    return None if _no_classes(labels) else as_labels(labels)


def as_labels(labels: Any) -> Tensor | None:
    """Return labels as an integer tensor of one axis; others are refused."""
    if labels is None:
        return None
    try:
        tensor = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"labels such as {labels!r:.40}: expected integers, one per input") from None
    if _no_classes(tensor):
        raise InputError(
            f"labels of type {tensor.dtype} and shape {tuple(tensor.shape)}: expected integers, one per input"
        )
    return tensor.long() if tensor.dtype == torch.bool else tensor


def _no_classes(labels: Tensor) -> bool:
    return labels.is_floating_point() or labels.is_complex() or labels.dim() != 1


def is_list_of_inputs(value: Any) -> bool:
    """Return whether one argument of a model is a list of inputs, such as images of different sizes.

    A tuple may as well be several tensors that belong together: it is a list if it holds images.
    """
    if isinstance(value, PackedSequence) or not isinstance(value, (list, tuple)) or not value:
        return False
    ranks = {part.ndim if isinstance(part, (Tensor, np.ndarray)) else None for part in value}
    return ranks == {3} or (isinstance(value, list) and len(ranks) == 1 and None not in ranks)


def batch_size(inputs: Any, batch_axis: int = 0) -> int:
    """Return B: the batch axis of the first argument with a tensor, or the number of elements of a list."""
    if isinstance(inputs, (Tensor, PackedSequence)) or not isinstance(inputs, (Mapping, tuple, list)):
        arguments: Iterable[Any] = (inputs,)
    else:
        arguments = inputs.values() if isinstance(inputs, Mapping) else inputs
    for argument in arguments:
        if isinstance(argument, PackedSequence):
            return int(argument.batch_sizes[0])
        if is_list_of_inputs(argument):
            return len(argument)
        first = first_tensor(argument, axes=1)  # a number alone, such as a time, is the same for all inputs
        if first is None:
            continue
        if not -first.dim() <= batch_axis < first.dim():
            raise InputError(f"an input of shape {tuple(first.shape)} has no axis {batch_axis}; set batch_axis=")
        return first.shape[batch_axis]
    raise InputError(f"inputs of type {type(inputs).__name__} hold no tensor with rows, so the batch has no size")


def first_tensor(value: Any, axes: int = 0) -> Tensor | None:
    """Return the first tensor with so many axes of a tensor, packed sequence, tuple, mapping or dataclass, depth first.

    >>> first_tensor((torch.tensor(0.5), {"scores": torch.zeros(2, 3)}), axes=1).shape
    torch.Size([2, 3])
    """
    if isinstance(value, Tensor):
        return value if value.dim() >= axes else None
    if isinstance(value, np.ndarray):
        return first_tensor(torch.from_numpy(value), axes)
    if isinstance(value, PackedSequence):
        return value.data
    if isinstance(value, Mapping):
        value = tuple(value.values())
    elif is_dataclass(value):
        value = tuple(getattr(value, part.name) for part in fields(value))
    if isinstance(value, (tuple, list)):
        for part in value:
            found = first_tensor(part, axes)
            if found is not None:
                return found
    return None


def to_device(value: Any, device: torch.device) -> Any:
    """Return the same structure with every tensor on ``device``."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, PackedSequence):
        packed: Any = value  # its type stubs know no device
        return packed.to(device)
    if isinstance(value, Mapping):
        return {key: to_device(part, device) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(part, device) for part in value))
    if isinstance(value, (tuple, list)):
        return type(value)(to_device(part, device) for part in value)
    return value


def call(model: nn.Module, inputs: Any) -> Any:
    """Run a model on unpacked inputs."""
    if isinstance(inputs, PackedSequence):
        return model(inputs)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


class TokenWeights:
    """Which tokens count in the average of their input, worked out once for all layers that share a mask.

    Args:
        tokens: ``(batch, tokens)``, false at padding.
    """

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens
        self._known: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def like(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return where padding is, ``(batch, tokens, 1)``, and how many other tokens inputs have, ``(batch, 1)``."""
        if (device, dtype) not in self._known:
            tokens = self.tokens.to(device)
            # An input of padding alone has no token to average: zeros, not a division by zero.
            counts = tokens.sum(1, keepdim=True).clamp(min=1).to(dtype)
            self._known[device, dtype] = ~tokens[:, :, None], counts
        return self._known[device, dtype]


@dataclass(frozen=True)
class Padding:
    """Which steps belong to which input.

    Args:
        mask: ``(batch, steps)``, true where a step belongs to the input.
        widths: how long an axis may be to be that of the steps, padding included; none is longer than the mask.
    """

    mask: Tensor
    widths: frozenset[int]

    @classmethod
    def of_mask(cls, mask: Tensor) -> Padding:
        """Read a mask as wide as the padded inputs."""
        return cls(mask, frozenset({mask.shape[1]}))

    def over(self, tokens: int) -> Tensor | None:
        """Return the mask of an axis of so many tokens, ``None`` if it is not that of the steps."""
        return self.mask[:, :tokens] if tokens in self.widths else None

    def weights(self, tokens: int) -> TokenWeights | None:
        """Return the weights of an axis of so many tokens, ``None`` if it is not that of the steps."""
        mask = self.over(tokens)
        return None if mask is None else TokenWeights(mask)

    def step(self, index: int) -> Tensor:
        """Return which inputs have a step; none has one past the mask."""
        return self.mask[:, index] if index < self.mask.shape[1] else self.mask.new_zeros(self.mask.shape[0])


def padding_of(inputs: Any, lengths: Any, size: int, batch_axis: int = 0) -> Padding | None:
    """Return what is padded, ``None`` where nothing is.

    Taken from ``lengths`` if given, else from a keyword input of that name. Lengths do not say how far the inputs were
    padded: every axis of the first input that is long enough may be that of the steps.
    """
    if lengths is None and isinstance(inputs, Mapping):
        lengths = inputs.get("lengths")
    if lengths is None:
        return None
    steps = torch.as_tensor(lengths)
    if steps.dim() != 1 or steps.shape[0] != size or steps.is_floating_point():
        raise InputError(
            f"lengths of type {steps.dtype} and shape {tuple(steps.shape)}: expected {size} integers, one per input"
        )
    longest = int(steps.max()) if size else 0
    if size and int(steps.min()) < 0:
        raise InputError(f"lengths down to {int(steps.min())}: expected 0 or more")
    widths = {longest, *(length for length in _other_axes(inputs, size, batch_axis) if length > longest)}
    return Padding(torch.arange(max(widths), device=steps.device) < steps[:, None], frozenset(widths))


def _other_axes(inputs: Any, size: int, batch_axis: int) -> list[int]:
    """Return lengths of the axes besides the batch, of the first input that has any."""
    for part in () if isinstance(inputs, PackedSequence) else tensors(inputs):
        if part.dim() > 1 and part.shape[batch_axis] == size:
            return [length for axis, length in enumerate(part.shape) if axis != batch_axis % part.dim()]
    return []

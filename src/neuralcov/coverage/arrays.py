"""Activations from arrays of any library, for people without a PyTorch model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations, statistics_device
from neuralcov.core.errors import InputError
from neuralcov.core.guards import with_ordinary_tensors
from neuralcov.core.input_names import checked_columns, checked_ids
from neuralcov.core.layout import Layout


def as_activations(
    source: Mapping[str, Any] | Activations,
    labels: Any = None,
    predictions: Any = None,
    device: torch.device | str | None = None,
) -> Activations:
    """Make one batch of ``{layer: (batch, neurons)}``: tensors, NumPy arrays or anything NumPy can read.

    Args:
        source: the layers' outputs, or activations; tensors in these pass through.
        labels: one integer per input.
        predictions: one integer per input.
        device: where to put arrays that are not tensors.
    """
    if isinstance(source, Activations):
        batch = _of_tensors(source, device)
    elif isinstance(source, Mapping):
        if not source:
            raise InputError("activations={}: expected at least one layer")
        batch = Activations({str(name): _as_outputs(name, outputs, device) for name, outputs in source.items()})
    else:
        raise InputError(
            f"activations of type {type(source).__name__}: expected a mapping of layer to (batch, neurons)"
        )
    batch = replace(
        batch,
        labels=batch.labels if labels is None else _as_classes("labels", labels, batch),
        predictions=batch.predictions if predictions is None else _as_classes("predictions", predictions, batch),
        ids=checked_ids(batch.ids, batch.size),
        metadata=checked_columns(batch.metadata, batch.size),
    )
    return with_ordinary_tensors(batch)


def _of_tensors(batch: Activations, device: torch.device | str | None) -> Activations:
    """Return activations whose arrays of other libraries have become tensors."""
    given: Mapping[str, Any] = batch.layers
    if not all(isinstance(outputs, Tensor) for outputs in given.values()):
        layers = {
            name: outputs if isinstance(outputs, Tensor) else _as_outputs(name, outputs, device)
            for name, outputs in given.items()
        }
        batch = replace(batch, layers=layers)
    classes: dict[str, Any] = {
        part: _as_classes(part, found, batch)
        for part in ("labels", "predictions")
        if (found := getattr(batch, part)) is not None and not isinstance(found, Tensor)
    }
    return replace(batch, **classes)


def in_layout_order(batch: Activations, layout: Layout) -> Activations:
    """Put the layers of a batch into the order of ``layout``; refuse a batch that does not fit."""
    if batch.relevance is None and _fits(batch, layout):
        return batch
    sizes = {name: outputs.shape[0] for name, outputs in batch.layers.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"layers of different batch sizes: {sizes}; expected one row per input in every layer")
    widths = {name: outputs.shape[1] for name, outputs in batch.layers.items()}
    if widths.keys() == layout.widths.keys():
        widths = {name: widths[name] for name in layout.widths}
    layout.require_same(Layout(widths, batch.device), "the batch")
    _check_relevance(batch)
    if list(batch.layers) == list(layout):
        return batch
    return replace(batch, layers={name: batch.layers[name] for name in layout})


def _fits(batch: Activations, layout: Layout) -> bool:
    """Return whether a batch has the very layers of ``layout`` in order: what most batches are asked, and quickly."""
    layers, widths = batch.layers, layout.widths
    if len(layers) != len(widths):
        return False
    size = batch.size
    pairs = zip(layers.items(), widths.items(), strict=True)
    return all(name == known and outputs.shape == (size, width) for (name, outputs), (known, width) in pairs)


def _check_relevance(batch: Activations) -> None:
    for name, outputs in batch.layers.items() if batch.relevance is not None else ():
        assert batch.relevance is not None
        if name not in batch.relevance:
            raise InputError(f"the relevance lacks layer {name!r}: expected one number for every activation")
        if batch.relevance[name].shape != outputs.shape:
            raise InputError(
                f"relevance of layer {name!r} has shape {tuple(batch.relevance[name].shape)}: "
                f"expected {tuple(outputs.shape)}, one number for every activation"
            )


def _as_outputs(name: str, outputs: Any, device: torch.device | str | None) -> Tensor:
    tensor = outputs if isinstance(outputs, Tensor) else _tensor_of(name, np.array(outputs))
    if tensor.dim() != 2 or tensor.is_complex():
        raise InputError(
            f"activations of layer {name!r} have type {tensor.dtype} and shape {tuple(tensor.shape)}: "
            "expected (batch, neurons)"
        )
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    home = statistics_device(tensor.device if device is None else torch.device(device))
    return tensor.detach().to(home, dtype)


def _tensor_of(name: str, outputs: np.ndarray[Any, Any]) -> Tensor:
    """Return an array as a tensor; one of a type that packages add to NumPy's, such as JAX's bfloat16, as float32."""
    try:
        return torch.from_numpy(outputs.astype(np.float32) if outputs.dtype.kind == "V" else outputs)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"activations of layer {name!r} have type {outputs.dtype}: expected numbers ({error})"
        ) from error


def _as_classes(what: str, classes: Any, batch: Activations) -> Tensor:
    tensor = classes if isinstance(classes, Tensor) else torch.from_numpy(np.asarray(classes))
    if not tensor.numel():
        tensor = tensor.long()  # an empty list has no type of its own
    if tensor.shape != (batch.size,) or tensor.is_floating_point() or tensor.is_complex():
        raise InputError(
            f"{what} of type {tensor.dtype} and shape {tuple(tensor.shape)}: "
            f"expected {batch.size} integers, one per input"
        )
    return tensor.detach().to(batch.device, torch.int64)

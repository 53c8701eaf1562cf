"""A batch of activations as bytes, for processes that observe the batches of all."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.container import opened, write
from neuralcov.core.input_names import checked_columns, checked_ids

_CONTENT = "batch"
_MAPPINGS = ("layers", "relevance", "present")
_TENSORS = ("labels", "predictions", "keys", "valid", "tokens", "sources", "moments")


def pack_batch(batch: Activations) -> bytes:
    """Return a batch as bytes."""
    tensors: dict[str, Tensor] = {}
    names: dict[str, list[str] | None] = {}
    for part in _MAPPINGS:
        mapping: Mapping[str, Tensor] | None = getattr(batch, part)
        names[part] = None if mapping is None else list(mapping)
        tensors |= {f"{part}.{index}": outputs for index, outputs in enumerate((mapping or {}).values())}
    tensors |= {part: tensor for part in _TENSORS if (tensor := getattr(batch, part)) is not None}
    header: dict[str, Any] = {
        "names": names,
        "ids": None if batch.ids is None else list(batch.ids),
        "metadata": {name: list(column) for name, column in batch.metadata.items()},
    }
    file = io.BytesIO()
    write(file, _CONTENT, header, tensors)
    return file.getvalue()


def unpack_batch(packed: bytes, device: torch.device) -> Activations:
    """Return the batch that ``pack_batch`` packed, on a device."""
    with opened(packed, _CONTENT, "a batch of another process") as file:
        header = file.header

        def mapping(part: str) -> dict[str, Tensor] | None:
            names = header["names"][part]
            if names is None:
                return None
            return {str(name): file.read(f"{part}.{index}").to(device) for index, name in enumerate(names)}

        layers = mapping("layers") or {}
        size = len(next(iter(layers.values())))
        return Activations(
            layers=layers,
            relevance=mapping("relevance"),
            present=mapping("present") or {},
            ids=checked_ids(header["ids"], size),
            metadata=checked_columns(header["metadata"], size),
            **{part: file.read(part).to(device) for part in _TENSORS if part in file.tensors},
        )

"""Our files: safetensors with a versioned JSON header, complete or absent. Nothing is unpickled.

Schema history:

1. ``neuralcov`` = schema version, ``kind`` = ``coverage`` or ``calibration``, ``header`` = JSON whose trees
   of records name their tensors; boolean tensors are stored as packed bits.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from neuralcov.core.errors import StateFileError

SCHEMA = 1

_ROWS_AT_ONCE = 4096
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
}


def write(path: str | os.PathLike[str], kind: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a file in one step: it is complete under its name, or it is not there."""
    target = Path(path)
    packed = {name: list(tensor.shape) for name, tensor in tensors.items() if tensor.dtype == torch.bool}
    metadata = {
        "neuralcov": str(SCHEMA),
        "kind": kind,
        "header": json.dumps({**header, "packed": packed}),
    }
    # A name of its own, so that two who write the same file do not write into each other's.
    unfinished = target.with_name(f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}.unfinished")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _stream(unfinished, metadata, tensors)
        os.replace(unfinished, target)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise StateFileError(f"{target}: cannot be written: {error.strerror or error}") from error


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file of ours, mapped into memory, or one sentence on why it is not."""
    target = Path(path)
    if not target.is_file():
        raise StateFileError(f"{target}: there is no such file")
    try:
        with safe_open(target, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            header = _header(target, kind, metadata)
            packed = header["packed"]
            tensors = {
                name: _unpack(file.get_tensor(name), packed[name]) if name in packed else file.get_tensor(name)
                for name in file.keys()  # noqa: SIM118 - safe_open is not a mapping
            }
    except SafetensorError as error:
        raise StateFileError(f"{target}: not a neuralcov file, or cut short ({error})") from error
    except OSError as error:
        raise StateFileError(f"{target}: cannot be read: {error.strerror or error}") from error
    return header, tensors


def _header(path: Path, kind: str, metadata: Mapping[str, str]) -> dict[str, Any]:
    version = metadata.get("neuralcov")
    if version is None:
        raise StateFileError(f"{path}: a safetensors file, but not one that neuralcov wrote")
    if version != str(SCHEMA):
        raise StateFileError(
            f"{path}: written with file schema {version}, this neuralcov reads schema {SCHEMA}; "
            "use the version of neuralcov that wrote it"
        )
    if metadata.get("kind") != kind:
        raise StateFileError(f"{path}: a {metadata.get('kind')} file, expected a {kind} file")
    try:
        header: dict[str, Any] = json.loads(metadata["header"])
        if not isinstance(header["packed"], dict):
            raise TypeError("packed")
    except (KeyError, TypeError, ValueError) as error:
        raise StateFileError(f"{path}: the header is damaged ({error})") from error
    return header


def _stream(path: Path, metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file tensor by tensor: what is on disk or on a GPU never is in memory as a whole."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        packed = tensor.dtype == torch.bool
        shape = [-(-tensor.numel() // 8)] if packed else list(tensor.shape)
        start, end = end, end + (shape[0] if packed else tensor.nbytes)
        kind = _TYPES[torch.uint8 if packed else tensor.dtype]
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in tensors.values():
            for part in _parts(tensor):
                content = part.detach().cpu().contiguous().numpy().reshape(-1)
                file.write((np.packbits(content) if tensor.dtype == torch.bool else content).data)


def _parts(tensor: Tensor) -> Sequence[Tensor]:
    """A few thousand rows at a time; bits whole, since rows need not end at a byte."""
    whole = tensor.dim() < 2 or tensor.dtype == torch.bool
    return [tensor] if whole else torch.split(tensor, _ROWS_AT_ONCE)


def _unpack(bits: Tensor, shape: list[int]) -> Tensor:
    count = int(np.prod(shape, dtype=np.int64))
    return torch.from_numpy(np.unpackbits(bits.numpy(), count=count).astype(bool)).reshape(shape)

"""Our files: safetensors with a JSON header, every byte of them under a SHA-256. Nothing is unpickled.

The metadata hold ``neuralcov`` (the schema), ``content`` (what the file holds), ``header`` (canonical JSON) and the
header's ``sha256``, which is the file's id. The header lists dtype, shape and SHA-256 of every tensor, so that one
digest stands for the whole file. A checksum finds damage, not an attacker.

Schema history:

1. Records by module path; ``kind`` = ``coverage`` or ``calibration``; boolean tensors as packed bits; no checksums.
2. Declared names of records and criteria; ``content``; SHA-256 of header and tensors; provenance and definitions.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.digests import stored_parts
from neuralcov.core.errors import ForeignFileError, StateFileError
from neuralcov.core.files import Place, atomic_write, name_of, opened_to_read
from neuralcov.core.spill import reserved

SCHEMA = 2
STATE, CALIBRATION, SEEDS = "state", "calibration", "seeds"

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "U8",
}
_NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in _DTYPES}
_STORED = {code: dtype for dtype, code in _DTYPES.items() if dtype != torch.bool}
_KINDS = {"coverage": STATE, "calibration": CALIBRATION}
_BLANK = "0" * 64
_LONGEST_HEAD = 1 << 28
_CHUNK = 1 << 22


@dataclass(frozen=True)
class StoredTensor:
    """Describe a tensor of a file, and where its bytes lie behind the head. Booleans are packed, eight a byte."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int
    sha256: str | None

    @property
    def fits(self) -> bool:
        """Return whether there are as many bytes as dtype and shape need."""
        return self.end - self.start == _size(self.dtype, self.shape)


def canonical(content: Any) -> str:
    """Return JSON with one spelling: sorted keys, no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def save(path: Place, content: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Write a file in one step, complete under its name or not there; return its id."""
    try:
        with atomic_write(path) as file:
            return write(file, content, header, tensors)
    except OSError as error:
        raise StateFileError(f"{name_of(path)}: cannot be written: {error.strerror or error}") from error


def write(file: BinaryIO, content: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Write a container to an open file; return its id.

    The digests of the tensors stand before the tensors. They have a fixed length: the head is written with zeros, the
    tensors are hashed while they are written, one at a time, and the head is written again.
    """
    # Wide numbers first, so that every tensor is aligned to its own.
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    beginning = file.tell()
    head, _ = _head(content, header, tensors, dict.fromkeys(tensors, _BLANK))
    file.write(head)
    digests = {}
    for name, tensor in tensors.items():
        digest = hashlib.sha256()
        for part in stored_parts(tensor):
            digest.update(part)
            file.write(part)
        digests[name] = digest.hexdigest()
    filled, identity = _head(content, header, tensors, digests)
    assert len(filled) == len(head), "digests have one length"
    file.seek(beginning)
    file.write(filled)
    file.seek(0, io.SEEK_END)
    return identity


def _head(
    content: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor], digests: Mapping[str, str]
) -> tuple[bytes, str]:
    """Return everything before the tensors, and the header's SHA-256."""
    listed, entries, end = {}, {}, 0
    for name, tensor in tensors.items():
        shape, packed = list(tensor.shape), tensor.dtype == torch.bool
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in _NAMES:
            raise StateFileError(f"the tensor {name} is of type {dtype}, which files do not hold")
        listed[name] = {"dtype": dtype, "shape": shape, "sha256": digests[name]} | ({"packed": True} if packed else {})
        start, end = end, end + _size(tensor.dtype, shape)
        stored = [end - start] if packed else shape
        entries[name] = {"dtype": _DTYPES[tensor.dtype], "shape": stored, "data_offsets": [start, end]}
    text = canonical({**header, "tensors": listed})
    identity = hashlib.sha256(text.encode()).hexdigest()
    metadata = {"neuralcov": str(SCHEMA), "content": content, "header": text, "sha256": identity}
    head = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":"), ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head, identity


def _size(dtype: torch.dtype, shape: tuple[int, ...] | list[int]) -> int:
    """Return how many bytes a tensor takes in a file."""
    count = math.prod(shape)
    return -(-count // 8) if dtype == torch.bool else count * dtype.itemsize


class Container:
    """Read an open file of ours whose head was found sound.

    Tensors are read one by one, after the caller has looked at what the header says of them.
    """

    def __init__(self, file: BinaryIO, name: str, content: str) -> None:
        self._file, self.name = file, name
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LONGEST_HEAD):
            raise self.error("not a neuralcov file, or cut short")
        self._data = 8 + length
        entries = self._json(file.read(length), "not a neuralcov file, or cut short")
        metadata = entries.pop("__metadata__", None)
        if not isinstance(metadata, dict) or "neuralcov" not in metadata:
            raise ForeignFileError(f"{self.name}: a safetensors file, but not one that neuralcov wrote")
        self.schema = self._schema(metadata)
        self._require_content(metadata, content)
        text = str(metadata.get("header")).encode()
        self.id = None if self.schema == 1 else hashlib.sha256(text).hexdigest()
        if self.id is not None and self.id != metadata.get("sha256"):
            raise self.error("the header is damaged (its SHA-256 does not fit): take the file from a copy")
        self.header: dict[str, Any] = self._json(text, "the header is damaged: take the file from a copy")
        self.tensors = self._listed(entries, size - self._data)

    def error(self, sentence: str) -> StateFileError:
        """Return the error that says what is wrong with this file."""
        return StateFileError(f"{self.name}: {sentence}")

    def read(self, name: str, *, mapped: bool = False) -> Tensor:
        """Read a tensor into memory and check its bytes; one that is ``mapped`` is copied to a temporary file instead.

        A map of this file itself would change with it, and end the process if the file were cut short.
        """
        entry = self.tensors[name]
        count = entry.end - entry.start
        raw = reserved((count,), np.uint8, "loaded") if mapped and count else np.empty(count, dtype=np.uint8)
        digest = hashlib.sha256()
        self._file.seek(self._data + entry.start)
        for start in range(0, count, _CHUNK):
            wanted = min(_CHUNK, count - start)
            part = raw[start : start + wanted]
            view = part.data
            while len(view):
                got = self._file.readinto(view)  # type: ignore[attr-defined]
                if not got:
                    raise self.error("cut short while it was read")
                view = view[got:]
            digest.update(part.data)
        if entry.sha256 is not None and digest.hexdigest() != entry.sha256:
            raise self.error(f"the tensor {name} is damaged (its SHA-256 does not fit): take the file from a copy")
        if not count:
            return torch.empty(entry.shape, dtype=entry.dtype)
        if entry.dtype == torch.bool:
            bits = np.unpackbits(raw, count=math.prod(entry.shape))
            return torch.from_numpy(bits.view(np.bool_)).reshape(entry.shape)
        return torch.from_numpy(raw).view(entry.dtype).reshape(entry.shape)

    def empty(self, name: str) -> Tensor:
        """Return a tensor of that form on the meta device, which takes no memory."""
        return torch.empty(self.tensors[name].shape, dtype=self.tensors[name].dtype, device="meta")

    def _json(self, text: bytes, complaint: str) -> dict[str, Any]:
        try:
            found = json.loads(text.decode())
        except (ValueError, RecursionError) as error:
            raise self.error(complaint) from error
        if not isinstance(found, dict):
            raise self.error(complaint)
        return found

    def _schema(self, metadata: Mapping[str, Any]) -> int:
        written = str(metadata["neuralcov"])
        if written not in [str(schema) for schema in range(1, SCHEMA + 1)]:
            raise self.error(
                f"written with file schema {written}, this neuralcov reads up to {SCHEMA}: upgrade neuralcov"
            )
        return int(written)

    def _require_content(self, metadata: Mapping[str, Any], content: str) -> None:
        said = metadata.get("content")
        if self.schema == 1:
            said = _KINDS.get(str(metadata.get("kind")))
        if said != content:
            raise self.error(f"a {said}, expected a {content}" if said else "the header is damaged")

    def _listed(self, entries: Mapping[str, Any], size: int) -> dict[str, StoredTensor]:
        """List all tensors, whose bytes must lie one behind the other and fill the file."""
        damaged = "the header is damaged: take the file from a copy"
        try:
            listed = self._old_list(entries) if self.schema == 1 else self.header["tensors"]
            found = {name: _entry(listed[name], entries[name]) for name in listed}
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise self.error(damaged) from error
        end = 0
        for tensor in sorted(found.values(), key=lambda tensor: (tensor.start, tensor.end)):
            if tensor.start != end or not tensor.fits:
                raise self.error(damaged)
            end = tensor.end
        if entries.keys() != found.keys():
            raise self.error(damaged)
        if end != size:
            raise self.error("not a neuralcov file, or cut short")
        return found

    def _old_list(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Return what schema 1 says of its tensors, as schema 2 would."""
        packed: dict[str, Any] = self.header["packed"]
        names = {code: str(dtype).removeprefix("torch.") for code, dtype in _STORED.items()}
        return {
            name: {"dtype": "bool", "shape": packed[name], "packed": True}
            if name in packed
            else {"dtype": names[entry["dtype"]], "shape": entry["shape"]}
            for name, entry in entries.items()
        }


def _entry(said: Mapping[str, Any], stored: Mapping[str, Any]) -> StoredTensor:
    """Read one tensor's entry of the header, or fail if it is not the one that the file itself has."""
    dtype, shape = _NAMES[said["dtype"]], tuple(said["shape"])
    start, end = stored["data_offsets"]
    numbers = (*shape, start, end)
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(numbers)
    packed = dtype == torch.bool
    if stored["dtype"] != _DTYPES[dtype] or tuple(stored["shape"]) != ((end - start,) if packed else shape):
        raise ValueError(said)
    if bool(said.get("packed")) != packed:
        raise ValueError(said)
    return StoredTensor(dtype, shape, start, end, said.get("sha256"))


@contextmanager
def opened(source: Place | bytes, content: str, name: str | None = None) -> Iterator[Container]:
    """Open a file, or the bytes of one, that holds ``content``; it is opened once, whatever is read of it."""
    if isinstance(source, bytes):
        yield Container(io.BytesIO(source), name or "the bytes", content)
        return
    called = name or name_of(source)
    try:
        with opened_to_read(source) as file:
            yield Container(file, called, content)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise StateFileError(f"{called}: there is no such file") from error
    except OSError as error:
        raise StateFileError(f"{called}: cannot be read: {error.strerror or error}") from error

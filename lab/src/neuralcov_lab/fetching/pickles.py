"""Pickles of plain NumPy arrays, read without letting them run anything else.

Nothing of NumPy is handed to a pickle, since NumPy trusts the state it is restored from and a damaged file could crash
the process. A pickle fills stand-ins; arrays of numbers are made from these afterwards, with everything checked.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from neuralcov_lab.errors import DataError


def read_arrays(path: Path) -> dict[str, Any]:
    """A pickled dictionary of arrays, lists, numbers and text; anything else in it is refused."""
    try:
        # From memory, where a damaged length reads no more than there is.
        content = _Restricted(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        if isinstance(content, dict):
            return {_text(key): value.made() if isinstance(value, _Array) else value for key, value in content.items()}
    except Exception as error:  # Damaged bytes are instructions too, and may end in any error there is.
        told = isinstance(error, (ValueError, pickle.UnpicklingError)) and str(error)
        reason = told.splitlines()[0] if told else type(error).__name__
        raise DataError(f"{path}: not a pickle of plain arrays, or cut short ({reason})") from error
    raise DataError(f"{path}: holds a {type(content).__name__}, expected a dictionary of arrays")


def _text(value: Any) -> str:
    """Python 2 wrote text as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


class _Dtype:
    """Stands for a dtype."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.byte_order = _text(code), "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.byte_order = _text(state[1])

    def made(self) -> np.dtype[Any]:
        if not re.fullmatch("[biuf][1248]", self.code) or self.byte_order not in tuple("<>=|"):
            raise ValueError(f"it has an array of type {self.code}, expected numbers")
        return np.dtype(self.byte_order + self.code)


class _Array:
    """Stands for an array; ``state`` is as NumPy restores one from."""

    shape: tuple[int, ...]
    dtype: _Dtype
    in_columns: bool
    content: Any

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.dtype, self.in_columns, self.content = state

    def made(self) -> np.ndarray:
        if not isinstance(self.content, (bytes, bytearray)):
            raise ValueError(f"it has an array of {type(self.content).__name__}, expected bytes")
        numbers: np.ndarray = np.frombuffer(self.content, self.dtype.made())
        return numbers.reshape(self.shape, order="F" if self.in_columns else "C")


def _reconstructed(*_: Any) -> _Array:
    """The way of protocols up to 4: empty, and filled in by its state."""
    return _Array()


def _from_buffer(content: bytes, dtype: _Dtype, shape: tuple[int, ...], order: Any) -> _Array:
    """The way of protocol 5."""
    array = _Array()
    array.content, array.dtype, array.shape, array.in_columns = content, dtype, shape, _text(order) == "F"
    return array


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes into old pickles."""
    return text.encode(encoding if encoding in ("latin1", "ascii", "utf-8") else "latin1")


# All that an array pickled by Python 2 or 3, under any NumPy, may refer to.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _reconstructed,
    ("numpy._core.multiarray", "_reconstruct"): _reconstructed,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
}


class _Restricted(pickle._Unpickler):
    """The unpickler written in Python: the other takes as many gigabytes as a damaged number asks for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        maker = _ALLOWED[module, name]
        # A pickle may set attributes of what it finds: those of a throwaway, then.
        return lambda *arguments: maker(*arguments)

    def _load_bytearray(self: Any) -> None:
        """As inherited, but without first making room for the length that the file claims."""
        length = int.from_bytes(self.read(8), "little")
        self.append(bytearray(self.read(length)))

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: _load_bytearray}

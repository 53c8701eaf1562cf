"""Pickles of plain NumPy arrays, read without letting them run anything else."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from neuralcov.core.errors import DataError


def read_arrays(path: Path) -> dict[str, Any]:
    """A pickled dictionary of arrays, lists, numbers and text; anything else in it is refused."""
    try:
        with path.open("rb") as file:
            content = _Restricted(file, encoding="bytes").load()
        if isinstance(content, dict):
            return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
    except Exception as error:  # Damaged bytes are instructions too, and may end in any error there is.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: not a pickle of plain arrays, or cut short ({reason})") from error
    raise DataError(f"{path}: holds a {type(content).__name__}, expected a dictionary of arrays")


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes into old pickles."""
    return text.encode(encoding if encoding in ("latin1", "ascii", "utf-8") else "latin1")


# All that an array pickled by Python 2 or 3, under any NumPy and protocol, may refer to.
_TYPES = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode,
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy.core.numeric", "_frombuffer"): np._core.numeric._frombuffer,  # type: ignore[attr-defined]
    ("numpy._core.numeric", "_frombuffer"): np._core.numeric._frombuffer,  # type: ignore[attr-defined]
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _TYPES:
            return _TYPES[module, name]
        if (module, name) not in _FUNCTIONS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        function = _FUNCTIONS[module, name]
        # A pickle may set a function's defaults and attributes: those of this throwaway, then.
        return lambda *arguments: function(*arguments)

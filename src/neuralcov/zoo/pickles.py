"""Pickles of plain NumPy arrays, read without letting them run anything else."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from neuralcov.core.errors import DataError

# All that an array pickled by Python 2 or 3, under any NumPy, may refer to.
_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
}


def read_arrays(path: Path) -> dict[str, Any]:
    """A pickled dictionary of arrays, lists, numbers and text; anything else in it is refused."""
    try:
        with path.open("rb") as file:
            content = _Restricted(file, encoding="bytes").load()
    except (EOFError, pickle.UnpicklingError, ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a pickle of plain arrays, or cut short ({error})") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: holds a {type(content).__name__}, expected a dictionary of arrays")
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _encode
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _ALLOWED[module, name]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes into old pickles."""
    return text.encode(encoding if encoding in ("latin1", "ascii", "utf-8") else "latin1")

"""Arrays in temporary files, whose space is there before anything is written."""

from __future__ import annotations

import errno
import math
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from neuralcov.core.memory import show_bytes

_BLANKS = bytes(1 << 20)


def reserved(shape: tuple[int, ...], dtype: DTypeLike, what: str) -> np.memmap[Any, Any]:
    """Return an array in a temporary file that goes when nothing refers to it any more.

    A mapped file without space would end the process at the first write; so the space is reserved first, and an
    ``OSError`` says where it is lacking.

    Args:
        shape: of the array, with at least one element.
        dtype: of the array.
        what: what it will hold, for the message.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(prefix=f"neuralcov-{what}-") as file:
        try:
            _reserve(file.fileno(), size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise OSError(
                error.errno,
                f"no room for {show_bytes(size)} of rows that do not fit into memory=: make room, or set TMPDIR to a "
                "folder on another disk",
                tempfile.gettempdir(),
            ) from error
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape)


def _reserve(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
        return
    for start in range(0, size, len(_BLANKS)):  # macOS and Windows
        piece = memoryview(_BLANKS)[: size - start]
        while piece:
            piece = piece[os.write(handle, piece) :]

"""Locks between processes, by files; a process that ends in any way frees what it held."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO


def lock_file(path: Path, *, wait: bool) -> BinaryIO | None:
    """A file that holds the lock of its path until it is closed; ``None`` on systems that know no such locks.

    Args:
        path: the file; its folder is made.
        wait: until whoever holds it lets go; otherwise a ``BlockingIOError`` says that somebody does.
    """
    try:
        import fcntl
    except ImportError:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    held = path.open("wb")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        held.close()
        raise
    return held

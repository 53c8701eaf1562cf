"""Writing files so that they are complete under their name, or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes its name only once the block has ended well and all of it is on disk.

    Until then it lies beside its place under a name of its own, so that two who write the same file do not write into
    each other's, and a kill or a full disk leaves the old file as it was.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}.unfinished")
    try:
        with unfinished.open("xb+") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Have the new name itself on disk; systems that cannot open folders keep it in their own way."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with suppress(OSError):  # some network file systems have no such call
            os.fsync(handle)
    finally:
        os.close(handle)


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

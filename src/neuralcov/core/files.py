"""Files that are complete under their name or not there, and locks between processes."""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from filelock import BaseFileLock, FileLock, Timeout

from neuralcov.core.errors import InputError

# Files that a kill left are swept once they are so old: a younger one may not have its lock yet.
_YOUNG = 5.0


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes its name only once the block has ended well and all of it is on disk.

    Until then it lies beside its place under a name of its own, so that two who write the same file do not write into
    each other's, and a kill or a full disk leaves the old file as it was. A device or a pipe is written to as it is.

    Args:
        path: where to; its folder is made.
        durable: whether to wait until the disk has it. Leave that out for files that one process writes and can write
            again: they are complete or not there unless the machine itself fails, and a kill leaves at most one more.
    """
    target = Path(os.path.realpath(path))
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as device:
            yield device
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    own = f".{os.getpid()}-{secrets.token_hex(4)}" if durable else ""
    unfinished = target.with_name(f"{target.name}{own}.unfinished")
    if durable:
        _sweep(target)
    else:
        with suppress(OSError):
            unfinished.unlink()  # of a kill; a link that somebody planted is not followed
    try:
        with unfinished.open("xb+") as file:
            _hold(file.fileno())
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(unfinished):
            error.filename = os.fspath(path)
        raise
    if durable:
        _sync_folder(target.parent)


def _hold(handle: int) -> bool:
    """Lock an open file for as long as it is open; say whether nobody else holds it. A kill frees it."""
    try:
        import fcntl
    except ImportError:  # Windows removes no file that is open
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(target: Path) -> None:
    """Remove what killed processes left beside a file: what nobody holds, and is older than a moment."""
    ours = f"{target.name}."
    with suppress(OSError):
        with os.scandir(target.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(ours)]
        for name in names:
            if name.endswith(".unfinished") and name != f"{ours}unfinished":
                _sweep_one(target.with_name(name))


def _sweep_one(path: Path) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            if time.time() - os.fstat(handle).st_mtime > _YOUNG and _hold(handle):
                path.unlink()
        finally:
            os.close(handle)


def require_writable(path: str | os.PathLike[str] | None) -> None:
    """Make the folder of a file that is to be written later, or say now why it cannot be; ``None`` is no file."""
    if path is None:
        return
    place = Path(path)
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not place.exists() or place.is_file():
            parent = Path(os.path.realpath(place)).parent
            parent.mkdir(parents=True, exist_ok=True)
            trial = parent / f".{secrets.token_hex(8)}.unfinished"
            trial.touch(exist_ok=False)
            trial.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{place}: cannot be written: {reason}; name a file in a folder that can") from error


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


def write_bytes(path: str | os.PathLike[str], content: bytes, *, durable: bool = True) -> None:
    """Write a file; it is complete under its name, or as it was before."""
    with atomic_write(path, durable=durable) as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], text: str, *, durable: bool = True) -> None:
    """Write a text file in UTF-8; it is complete under its name, or as it was before."""
    write_bytes(path, text.encode(), durable=durable)


def write_json(path: str | os.PathLike[str], content: Any, *, indent: int = 2, durable: bool = True) -> None:
    """Write plain data as JSON; the file is complete under its name, or as it was before."""
    write_text(path, json.dumps(content, indent=indent) + "\n", durable=durable)


def append_line(path: str | os.PathLike[str], line: str) -> None:
    """Add one line to a text file. A kill may leave a part of it."""
    with open(path, "ab") as file:
        file.write(f"{line}\n".encode())


def lock_file(path: Path, *, wait: bool) -> BaseFileLock:
    """Take the lock of a file, to be released by ``release()`` or at the end of a block; a kill frees it as well.

    Args:
        path: the file; its folder is made.
        wait: until whoever holds it lets go; otherwise a ``BlockingIOError`` says that somebody does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whichever thread took it, any may release it.
    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(errno.EAGAIN, "somebody else holds the lock", os.fspath(path)) from None
    except NotImplementedError as error:
        raise OSError(errno.ENOSYS, f"the file system knows no locks ({error})") from error
    return lock

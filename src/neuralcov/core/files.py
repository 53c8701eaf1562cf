"""Files that are complete under their name or not there, and locks between processes."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from filelock import BaseFileLock, FileLock, Timeout


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
    try:
        with unfinished.open("xb+" if durable else "wb+") as file:
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

"""Files that are complete under their name or not there, and locks between processes.

A place is a path, a URL (``s3://bucket/suite.ncov``, ``file:///tmp/suite.ncov``) or an open binary file. URLs go
through fsspec, short of ``file://``.
"""

from __future__ import annotations

import errno
import glob
import io
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from filelock import BaseFileLock, FileLock, Timeout

from neuralcov.core import urls
from neuralcov.core.errors import InputError

AnyPath = str | os.PathLike[str]
Place = AnyPath | BinaryIO

_CHUNK = 1 << 22
# Files that a kill left are swept once they are so old: a younger one may not have its lock yet.
_YOUNG = 5.0


def is_place(value: Any) -> bool:
    """Return whether a value names or is a file: a path, a URL or an open file."""
    return isinstance(value, (str, os.PathLike)) or callable(getattr(value, "read", None))


def name_of(place: Place) -> str:
    """Return what messages call a place; a password in a URL is left out.

    >>> name_of("ftp://me:secret@host/suite.ncov"), name_of(io.BytesIO())
    ('ftp://host/suite.ncov', 'the file')
    """
    if isinstance(place, (str, os.PathLike)):
        return urls.without_password(os.fspath(place))
    name = getattr(place, "name", None)
    return name if isinstance(name, str) else "the file"


def ending_of(place: Place) -> str:
    """Return the ending of a place's name in small letters, such as ``.json``."""
    return Path(name_of(place)).suffix.lower()


def local_path(place: AnyPath) -> Path:
    """Return a path of this machine; refuse a URL of another one.

    >>> local_path("file:///tmp/a%20b").as_posix()
    '/tmp/a b'
    """
    path = os.fspath(place)
    if not urls.is_url(path):
        urls.refuse_collapsed(place)
        return Path(path)
    if not urls.is_local(path):
        raise InputError(f"{urls.without_password(path)}: expected a path on this machine, this cannot lie elsewhere")
    return Path(urls.local_path(path))


def beside(folder: Path, name: str) -> AnyPath:
    """Return the path that a file in this folder means by a name; a URL is itself.

    >>> beside(Path("ci"), "main.ncov"), beside(Path("ci"), "s3://bucket/main.ncov")
    (PosixPath('ci/main.ncov'), 's3://bucket/main.ncov')
    """
    return name if urls.is_url(name) else folder / name


def is_file(place: AnyPath) -> bool:
    """Return whether there is such a file, here or behind a URL."""
    path = os.fspath(place)
    if _is_remote(place):
        return urls.is_file(path)
    # Not refused where it only looks like a URL: data are named npz:/data/digits.npz.
    return (local_path(path) if urls.is_url(path) else Path(path)).is_file()


def matching(pattern: str) -> list[str]:
    """Return the files that a pattern with ``*``, ``?`` or ``[…]`` stands for, here or behind a URL, by name."""
    if _is_remote(pattern):
        return urls.matching(pattern)
    return sorted(glob.glob(os.fspath(local_path(pattern)) if urls.is_url(pattern) else pattern, recursive=True))


def _is_remote(place: AnyPath) -> bool:
    path = os.fspath(place)
    return urls.is_url(path) and not urls.is_local(path)


@contextmanager
def opened_to_read(place: Place) -> Iterator[BinaryIO]:
    """Open a file for reading, at any position; what lies elsewhere or comes from a stream is copied first.

    Args:
        place: where from; an open file is read from where it stands to its end, and left open.
    """
    if isinstance(place, (str, os.PathLike)) and not _is_remote(place):
        with local_path(place).open("rb", buffering=0) as file:
            yield cast(BinaryIO, file)
        return
    # On disk, since traces may take more than there is memory for.
    with tempfile.TemporaryFile(buffering=0) as copy:
        if isinstance(place, (str, os.PathLike)):
            with urls.opened(os.fspath(place)) as remote:
                shutil.copyfileobj(remote, copy, _CHUNK)
        else:
            _require_binary(place, "read")
            shutil.copyfileobj(place, copy, _CHUNK)
        copy.seek(0)
        yield cast(BinaryIO, copy)


def _require_binary(file: Any, method: str) -> None:
    if isinstance(file, io.TextIOBase) or not callable(getattr(file, method, None)):
        raise InputError(f"a {type(file).__name__}: expected a path, a URL, or a file that is open in binary mode")


def read_bytes(place: Place) -> bytes:
    """Read a file whole."""
    with opened_to_read(place) as file:
        return file.read()


def read_text(place: Place, encoding: str = "utf-8") -> str:
    """Read a text file whole."""
    return read_bytes(place).decode(encoding)


@contextmanager
def atomic_write(place: Place, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes its name only once the block has ended well and all of it is on disk.

    Until then it lies beside its place under a name of its own, so that two who write the same file do not write into
    each other's, and a kill or a full disk leaves the old file as it was. A device or a pipe is written to as it is.
    What goes to a URL or into an open file is sent once the block has ended well.

    Args:
        place: where to; a folder is made.
        durable: whether to wait until the disk has it. Leave that out for files that one process writes and can write
            again: they are complete or not there unless the machine itself fails, and a kill leaves at most one more.
    """
    if isinstance(place, (str, os.PathLike)) and not _is_remote(place):
        with _atomic_write(local_path(place), durable=durable) as file:
            yield file
    elif isinstance(place, (str, os.PathLike)):
        with tempfile.TemporaryDirectory(prefix="neuralcov-") as folder:
            local = Path(folder) / "content"
            with local.open("xb+") as file:
                yield cast(BinaryIO, file)
            urls.send(local, os.fspath(place))
    else:
        _require_binary(place, "write")
        with tempfile.SpooledTemporaryFile(max_size=_CHUNK) as copy:
            yield cast(BinaryIO, copy)
            copy.seek(0)
            shutil.copyfileobj(copy, place, _CHUNK)


@contextmanager
def _atomic_write(path: Path, *, durable: bool) -> Iterator[BinaryIO]:
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


def require_writable(path: AnyPath | None) -> None:
    """Make the folder of a file that is to be written later, or say now why it cannot be; ``None`` is no file.

    What a URL names is tried when it is written.
    """
    if path is None or _is_remote(path):
        return
    place = local_path(path)
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


def write_bytes(path: Place, content: bytes, *, durable: bool = True) -> None:
    """Write a file; it is complete under its name, or as it was before."""
    with atomic_write(path, durable=durable) as file:
        file.write(content)


def write_text(path: Place, text: str, *, durable: bool = True) -> None:
    """Write a text file in UTF-8; it is complete under its name, or as it was before."""
    write_bytes(path, text.encode(), durable=durable)


def write_json(path: Place, content: Any, *, indent: int = 2, durable: bool = True) -> None:
    """Write plain data as JSON; the file is complete under its name, or as it was before."""
    write_text(path, json.dumps(content, indent=indent) + "\n", durable=durable)


def append_line(path: AnyPath, line: str) -> None:
    """Add one line to a text file of this machine. A kill may leave a part of it."""
    with open(local_path(path), "ab") as file:
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

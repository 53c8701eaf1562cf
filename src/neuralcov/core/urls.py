"""Files behind URLs, through fsspec. Use them through ``neuralcov.core.files``."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from neuralcov.core.errors import InputError, MissingExtraError

# Two letters or more, so that "C://" is a drive; "simplecache::s3://" is fsspec's way to put a cache in between.
_PROTOCOL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?:::[A-Za-z][A-Za-z0-9+.-]+)*://")
_COLLAPSED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")


def is_url(path: str) -> bool:
    """Return whether a text is a URL.

    >>> is_url("s3://bucket/suite.ncov"), is_url("folder:/data"), is_url("C://data")
    (True, False, False)
    """
    return _PROTOCOL.match(path) is not None


def is_local(url: str) -> bool:
    """Return whether a URL names a file of this machine."""
    return url[:7].lower() == "file://"


def local_path(url: str) -> str:
    """Return the path that a ``file://`` URL names."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise InputError(f"{url}: expected three slashes and the whole path, such as file:///tmp/suite.ncov")
    return url2pathname(url.partition("://")[2].removeprefix(parts.netloc))


def refuse_collapsed(path: str | os.PathLike[str]) -> None:
    """Refuse a URL that has lost a slash, as ``pathlib`` takes it: it would name a folder such as ``s3:``."""
    text = os.fspath(path)
    if _COLLAPSED.match(text) and not os.path.isdir(text.partition("/")[0]):
        raise InputError(f"{text}: a URL has two slashes behind its colon; a Path drops one, so give it as text")


def without_password(text: str) -> str:
    """Return a URL without the user and the password in it; other texts as they are."""
    return re.sub(r"(?<=://)[^/@]*@", "", text) if is_url(text) else text


def is_file(url: str) -> bool:
    """Return whether there is such a file."""
    with _told(url):
        system, path = _found(url)
        return bool(system.isfile(path))


def matching(pattern: str) -> list[str]:
    """Return the URLs of the files that a pattern such as ``s3://bucket/part-*.ncov`` stands for, by name."""
    with _told(pattern):
        system, path = _found(pattern)
        names = sorted(str(name) for name in system.glob(path))
    # Names come without their protocol, but for those of the web.
    protocol = pattern.partition("://")[0]
    return [name if is_url(name) else f"{protocol}://{name}" for name in names]


@contextmanager
def opened(url: str) -> Iterator[BinaryIO]:
    """Open what a URL names for reading."""
    with _told(url):
        system, path = _found(url)
        with system.open(path, "rb") as file:
            yield cast(BinaryIO, file)


def send(local: Path, url: str) -> None:
    """Copy a file to where a URL says."""
    with _told(url):
        system, path = _found(url)
        system.put_file(os.fspath(local), path)


def _found(url: str) -> tuple[Any, str]:
    """Return the file system and the path in it, or say what is missing for it."""
    # Which imports torch; files are read and written without it.
    from neuralcov.core.arguments import require

    core = require("fsspec.core", f"URLs such as {without_password(url)}", extra="urls")
    try:
        system, path = core.url_to_fs(url)
    except ImportError as error:
        protocol = url.partition("://")[0]
        package = getattr(error.__cause__, "name", None)
        how = str(error).rstrip(".") if package is None else f"pip install {package}"
        raise MissingExtraError(
            f"{without_password(url)}: {protocol}:// needs {package or 'a package'} that is not installed: {how}"
        ) from error
    except ValueError as error:
        raise InputError(f"{without_password(url)}: {error}; give a path or a URL that fsspec knows") from error
    return system, str(path)


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Turn errors of clients, which have no type in common, into those of files."""
    name = without_password(url)
    try:
        yield
    except (InputError, MissingExtraError):
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", name) from error
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno or errno.EIO, error.strerror or str(error), name) from error
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise OSError(errno.EIO, f"{type(error).__name__}: {first}" if first else type(error).__name__, name) from error

"""Take single files out of package files, safely: nothing lands outside the folder, nothing half-written stays."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from neuralcov.core.files import atomic_write
from neuralcov_lab.errors import DataError

# No single file of a package we fetch comes near this; more is an archive made to fill a disk.
LARGEST = 1 << 30
_DAMAGE = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    ValueError,
    RuntimeError,  # an encrypted member of a zip file, or (NotImplementedError) one packed in an unknown way
)
_AR_MAGIC = b"!<arch>\n"


def extract(archive: Path, members: Mapping[str, str], folder: Path) -> dict[str, dict[str, int | str]]:
    """Write the wanted members of a ``.tgz``, ``.tar.gz``, ``.whl``, ``.zip`` or ``.deb`` file into ``folder``.

    Args:
        archive: the package file.
        members: path in the archive → file name in the folder.
        folder: made if need be; a file already there is replaced.

    Returns:
        size and SHA-256 of every file written, by name.
    """
    for name in members.values():
        _refuse_outside(archive, name)
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, dict[str, int | str]] = {}
    try:
        with _opened(archive) as (names, open_member):
            for name in names:
                _refuse_outside(archive, name)
            missing = [path for path in members if path not in names]
            if missing:
                raise DataError(f"{archive}: has no file {missing[0]}, which was expected in it")
            for path, name in members.items():
                with open_member(path) as content:
                    written[name] = _write(content, folder / name, archive)
    except _DAMAGE as error:
        first = next(iter(str(error).splitlines()), "")
        raise DataError(f"{archive}: damaged or cut short ({first}); delete it and fetch it again") from error
    return written


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_Opened = tuple[frozenset[str], Callable[[str], IO[bytes]]]


@contextmanager
def _opened(archive: Path) -> Iterator[_Opened]:
    """Return the names of an archive's members, and a way to open one of them."""
    with ExitStack() as stack:
        if archive.suffix in (".whl", ".zip"):
            zipped = stack.enter_context(zipfile.ZipFile(archive))
            yield frozenset(zipped.namelist()), zipped.open
            return
        if archive.suffix == ".deb":
            content = io.BytesIO(_data_of_deb(archive))
            tarred = stack.enter_context(tarfile.open(fileobj=content))
        else:
            tarred = stack.enter_context(tarfile.open(archive))
        entries = {_plain(entry.name): entry for entry in tarred.getmembers()}
        # To the very end, where the checksum stands that tells a damaged archive.
        while tarred.fileobj is not None and tarred.fileobj.read(1 << 20):
            pass
        yield frozenset(entries), lambda name: _regular(archive, tarred, entries[name])


def _regular(archive: Path, tarred: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = tarred.extractfile(entry) if entry.isreg() else None
    if content is None:
        raise DataError(f"{archive}: {entry.name} is a link or something else that is no plain file; not unpacked")
    return content


def _plain(name: str) -> str:
    """``./usr/share`` and ``usr/share`` are the same."""
    return name.removeprefix("./").rstrip("/")


def _refuse_outside(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        raise DataError(f"{archive}: the path {name!r} leads outside the folder; the archive is not unpacked")


def _write(content: IO[bytes], target: Path, archive: Path) -> dict[str, int | str]:
    digest, size = hashlib.sha256(), 0
    with atomic_write(target) as file:
        while chunk := content.read(1 << 20):
            size += len(chunk)
            if size > LARGEST:
                raise DataError(f"{archive}: {target.name} unpacks to more than {LARGEST:,} bytes; not unpacked")
            digest.update(chunk)
            file.write(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _data_of_deb(archive: Path) -> bytes:
    """Return the tar file with a Debian package's content, still compressed: one member of an ``ar`` archive."""
    with archive.open("rb") as file:
        if file.read(len(_AR_MAGIC)) != _AR_MAGIC:
            raise DataError(f"{archive}: not a Debian package, or damaged; delete it and fetch it again")
        while header := file.read(60):
            if len(header) < 60 or header[58:] != b"`\n":
                raise EOFError("a header is cut short")
            name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
            if not name.startswith("data.tar"):
                file.seek(size + size % 2, os.SEEK_CUR)
                continue
            if not name.endswith((".xz", ".gz", ".bz2", ".tar")):
                raise DataError(f"{archive}: its content is packed as {name}, which cannot be read here")
            content = file.read(size)
            if len(content) < size:
                raise EOFError("its content is cut short")
            return content
    raise EOFError("it has no content")

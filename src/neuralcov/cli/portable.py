"""Names and command lines without the folders of the machine they were typed on, for files that others read."""

from __future__ import annotations

import re
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

LEFT_OUT = "…/"
# An absolute path: at the beginning, or behind what stands before one in npz:PATH, --data=PATH and name(at='PATH').
_ABSOLUTE = re.compile(r"""(?<![^:=,('"|!])(?:[/\\~](?=[^,)'"|])|[A-Za-z]:[/\\])[^,)'"|]*""")


def without_folders(text: str, here: PurePath | None = None) -> str:
    """Return a text whose absolute paths are relative to where we are, or lack their folders where they lie elsewhere.

    Args:
        text: an option or an argument of a command line.
        here: where we are.

    >>> without_folders("npz:/home/kim/data/test.npz", PurePosixPath("/home/kim"))
    'npz:data/test.npz'
    >>> without_folders("zoo:cifar10(folder='/data/kim/cifar'):test", PurePosixPath("/home/kim"))
    "zoo:cifar10(folder='…/cifar'):test"
    >>> without_folders("NC(0.75)"), without_folders("--mean=0.5,0.4,0.3"), without_folders("../data/a.npz")
    ('NC(0.75)', '--mean=0.5,0.4,0.3', '../data/a.npz')
    """
    place = Path.cwd() if here is None else here
    return _ABSOLUTE.sub(lambda found: _shortened(found.group(), place), text)


def plain_without_folders(content: Any) -> Any:
    """Return plain data with every text in it so shortened."""
    if isinstance(content, str):
        return without_folders(content)
    if isinstance(content, dict):
        return {key: plain_without_folders(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [plain_without_folders(item) for item in content]
    return content


def _shortened(text: str, here: PurePath) -> str:
    windows = "\\" in text or text[1:2] == ":"
    path = PureWindowsPath(text) if windows else PurePosixPath(text)
    if isinstance(path, PurePosixPath) and isinstance(here, PurePosixPath) and path.is_relative_to(here):
        return path.relative_to(here).as_posix()
    return LEFT_OUT + path.name

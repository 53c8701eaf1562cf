"""Names chosen by globs: ``conv*|fc``, with ``!`` for what to leave out."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that match one of the globs joined by ``|`` as a whole, and none that starts with ``!``.

    >>> matching(["conv1", "conv2", "fc"], "conv*|!conv2"), matching(["conv1", "fc"], "!fc")
    (['conv1'], ['conv1'])
    """
    parts = [part.strip() for part in pattern.split("|") if part.strip()]
    wanted = [part for part in parts if not part.startswith("!")] or ["*"]
    unwanted = [part[1:] for part in parts if part.startswith("!")]
    return [name for name in names if _any(name, wanted) and not _any(name, unwanted)]


def _any(name: str, globs: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)

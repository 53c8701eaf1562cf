"""Names chosen by globs: ``conv*|fc``, with ``!`` for what to leave out."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that match one of the globs joined by ``|`` as a whole, and none that starts with ``!``.

    >>> matching(["conv1", "conv2", "fc"], "conv*|!conv2"), matching(["conv1", "fc"], "!fc")
    (['conv1'], ['conv1'])
    """
    wanted, unwanted = split_globs(pattern)
    return [name for name in names if matches(name, wanted) and not matches(name, unwanted)]


def split_globs(pattern: str) -> tuple[list[str], list[str]]:
    """The globs to take, ``*`` where there are none, and those to leave out, without their ``!``.

    >>> split_globs("conv*|!conv2"), split_globs("!fc")
    ((['conv*'], ['conv2']), (['*'], ['fc']))
    """
    parts = [part.strip() for part in pattern.split("|") if part.strip()]
    wanted = [part for part in parts if not part.startswith("!")] or ["*"]
    return wanted, [part[1:].strip() for part in parts if part.startswith("!")]


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether a name matches one of the globs as a whole."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def without_match(names: Iterable[str], pattern: str) -> list[str]:
    """The parts of a pattern that match no name, as they are written.

    >>> without_match(["conv1", "fc"], "conv*|head|!fcc")
    ['head', '!fcc']
    """
    known = list(names)
    wanted, unwanted = split_globs(pattern)
    parts = [(glob, glob) for glob in wanted] + [(f"!{glob}", glob) for glob in unwanted]
    return [part for part, glob in parts if not any(fnmatch.fnmatchcase(name, glob) for name in known)]

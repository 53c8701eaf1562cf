"""Say how many, one and several alike: 1 input, 2 inputs."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    Args:
        count: how many.
        noun: for one of them; words may stand before it.

    >>> counted(1, "input"), counted(2_000, "training input"), counted(0, "class"), counted(2, "entry")
    ('1 input', '2,000 training inputs', '0 classes', '2 entries')
    """
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def agreeing(count: int, one: str, several: str) -> str:
    """Return the word that goes with one, or that which goes with several.

    >>> agreeing(1, "was", "were"), agreeing(0, "was", "were")
    ('was', 'were')
    """
    return one if count == 1 else several


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    if noun.endswith("criterion"):
        return f"{noun[:-2]}a"
    return f"{noun}es" if noun.endswith(("s", "x", "ch")) else f"{noun}s"

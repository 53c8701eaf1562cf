"""Show how a text differs from its origin, word by word."""

from __future__ import annotations

from difflib import SequenceMatcher

# Words on either side of a change that are shown.
_AROUND = 5


def difference(origin: str, text: str, around: int | None = _AROUND) -> str:
    """Return a text with what changed between brackets, ``[-left out-]`` and ``{+put in+}``.

    Args:
        origin: words between spaces.
        text: likewise.
        around: words shown before and behind a change, ``…`` standing for others; ``None`` for all.

    >>> difference("a very good film", "a good film film")
    'a [-very-] good film {+film+}'
    >>> difference("one two three four five", "one two three four six", around=1)
    '… four [-five-] {+six+}'
    """
    before, after = origin.split(), text.split()
    said: list[str] = []
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for number, (kind, start, end, here, there) in enumerate(blocks):
        if kind == "equal":
            said += _shortened(before[start:end], around, first=number == 0, last=number == len(blocks) - 1)
            continue
        if end > start:
            said.append(f"[-{' '.join(before[start:end])}-]")
        if there > here:
            said.append(f"{{+{' '.join(after[here:there])}+}}")
    return " ".join(said)


def _shortened(words: list[str], around: int | None, *, first: bool, last: bool) -> list[str]:
    """Return words between two changes, with only some kept beside each."""
    if around is None or (first and last):
        return words
    keep = (0 if first else around) + (0 if last else around)
    if len(words) <= keep:
        return words
    return [*([] if first else words[:around]), "…", *([] if last else words[len(words) - around :])]

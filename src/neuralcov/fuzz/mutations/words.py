"""Tables of what a word may become: slips on a keyboard, and words nearby in an embedding."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from neuralcov.core.errors import InputError

_ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
_BLOCK = 1024


def typo_table(words: Sequence[str], *, unknown: int, variants: int = 8) -> Tensor:
    """``(words, variants)``: for each word, tokens of what a slip on the keyboard makes of it.

    A slip hits a neighbouring key, leaves a letter out, doubles one or swaps two; which slips is a function of the
    word. What is no word of the vocabulary becomes ``unknown``, as it would for the model. Words in angle
    brackets, such as padding, are left alone.

    >>> table = typo_table(["<pad>", "<unk>", "cat", "vat", "at", "cta"], unknown=1, variants=4)
    >>> table[0].tolist(), table.shape
    ([0, 0, 0, 0], torch.Size([6, 4]))
    """
    numbers = {word: number for number, word in enumerate(words)}
    table = torch.empty(len(words), variants, dtype=torch.int64)
    for number, word in enumerate(words):
        if not word or word.startswith("<"):
            table[number] = number
            continue
        digest = hashlib.shake_128(word.encode()).digest(2 * variants)
        slips = [slipped(word, digest[2 * i], digest[2 * i + 1]) for i in range(variants)]
        table[number] = torch.tensor([numbers.get(slip, unknown) for slip in slips])
    return table


def slipped(word: str, kind: int, place: int) -> str:
    """A word with one slip, chosen by two numbers.

    >>> [slipped("word", kind, 1) for kind in range(4)]
    ['wird', 'wrd', 'woord', 'wrod']
    """
    at = place % len(word)
    letter = word[at]
    if kind % 4 == 0 and letter in NEIGHBOURS:
        near = NEIGHBOURS[letter]
        return word[:at] + near[(kind // 4 + place // len(word)) % len(near)] + word[at + 1 :]
    if kind % 4 == 1 and len(word) > 1:
        return word[:at] + word[at + 1 :]
    if kind % 4 == 3 and at + 1 < len(word):
        return word[:at] + word[at + 1] + letter + word[at + 2 :]
    return word[:at] + letter + word[at:]


def neighbour_table(vectors: Tensor, *, count: int = 8, keep: Sequence[int] = ()) -> Tensor:
    """``(vocabulary, count)``: for each word the ones whose vectors point in the most similar directions.

    Args:
        vectors: ``(vocabulary, dimensions)``, such as a model's own embedding.
        count: how many neighbours.
        keep: tokens that stay themselves and are nobody's neighbours, such as padding.

    >>> neighbour_table(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), count=1, keep=[0]).T
    tensor([[0, 2, 1, 2]])
    """
    if vectors.dim() != 2 or not 0 < count < len(vectors) - len(keep):
        raise InputError(
            f"{count} neighbours among vectors of shape {tuple(vectors.shape)}: expected (vocabulary, dimensions) and "
            "fewer neighbours than words"
        )
    directions = functional.normalize(vectors.detach().float(), dim=1)
    kept = torch.tensor(list(keep), dtype=torch.int64, device=vectors.device)
    blocks = []
    for start in range(0, len(vectors), _BLOCK):
        rows = torch.arange(start, min(start + _BLOCK, len(vectors)), device=vectors.device)
        nearness = directions[rows] @ directions.T
        nearness[:, kept] = -torch.inf
        nearness[torch.arange(len(rows), device=vectors.device), rows] = -torch.inf
        blocks.append(nearness.topk(count).indices)
    table = torch.cat(blocks)
    table[kept] = kept[:, None]
    return table


def _neighbours() -> dict[str, str]:
    """Each key's neighbours on an English keyboard, whose rows stand half a key further right one by one."""
    found: dict[str, str] = {}
    for row, keys in enumerate(_ROWS):
        for column, key in enumerate(keys):
            beside = [(row, column - 1), (row, column + 1)]
            places = [*beside, (row - 1, column), (row - 1, column + 1), (row + 1, column - 1), (row + 1, column)]
            near = [_ROWS[r][c] for r, c in places if 0 <= r < len(_ROWS) and 0 <= c < len(_ROWS[r])]
            found[key] = "".join(near)
    return found


NEIGHBOURS: Mapping[str, str] = _neighbours()

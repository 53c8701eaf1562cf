"""Mutate texts: words and typos."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from neuralcov.core.errors import InputError
from neuralcov.fuzz.formats import text_lengths
from neuralcov.fuzz.mutations.mutation import Mutation, MutationDraw
from neuralcov.fuzz.randomness import uniform

_KEYS = 1 << 48


class TextMutation(Mutation):
    """Repeat a change a few times in a text, at places drawn from the setting.

    Args:
        counts: how often; one of these is drawn for each text.
        padding: the token behind a text's end.
    """

    geometric = False

    def __init__(self, name: str, counts: Sequence[int], padding: int = 0) -> None:
        if not counts or min(counts) < 1:
            raise InputError(f"mutation {name!r} of {list(counts)} words: expected numbers of at least 1")
        self.name = name
        self.counts = tuple(counts)
        self.padding = padding

    @override
    def choose(self, chances: np.ndarray) -> np.ndarray:
        return (chances * _KEYS).astype(np.int64)

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        keys = torch.from_numpy(draw.setting).to(batch.device, non_blocking=True)
        times = torch.from_numpy(self._times(draw.setting)).to(batch.device, non_blocking=True)
        tokens = batch
        for turn in range(int(max(self._times(draw.setting), default=0))):
            lengths = text_lengths(tokens, self.padding)
            changed = self.change(tokens, lengths, keys, 8 * turn)
            tokens = torch.where((turn < times)[:, None], changed, tokens)
        return tokens

    @abstractmethod
    def change(self, tokens: Tensor, lengths: Tensor, keys: Tensor, start: int) -> Tensor:
        """Make one change in every text, with random numbers from ``start`` on; texts too short for it stay."""

    @override
    def describe(self, setting: int) -> str:
        return f"{self.name} ×{int(self._times(np.array([setting]))[0])} with key {setting}"

    @override
    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "geometric": False, "counts": list(self.counts), "padding": self.padding}

    def _times(self, settings: np.ndarray) -> np.ndarray:
        return np.asarray(np.array(self.counts)[settings % len(self.counts)])


class Swap(TextMutation):
    """Let two neighbouring words change places."""

    def __init__(self, counts: Sequence[int] = (1, 2, 3), padding: int = 0) -> None:
        super().__init__("swap", counts, padding)

    @override
    def change(self, tokens: Tensor, lengths: Tensor, keys: Tensor, start: int) -> Tensor:
        here = _place(lengths - 1, keys, start)[:, None]
        order = _columns(tokens).expand_as(tokens)
        swapped = torch.where(order == here, order + 1, torch.where(order == here + 1, order - 1, order))
        return torch.where((lengths >= 2)[:, None], tokens.gather(1, swapped.clamp(max=tokens.shape[1] - 1)), tokens)


class Drop(TextMutation):
    """Drop a word, so that what follows moves up; a single word stays."""

    def __init__(self, counts: Sequence[int] = (1, 2, 3), padding: int = 0) -> None:
        super().__init__("drop", counts, padding)

    @override
    def change(self, tokens: Tensor, lengths: Tensor, keys: Tensor, start: int) -> Tensor:
        here = _place(lengths, keys, start)[:, None]
        order = _columns(tokens)
        end = tokens.new_full((len(tokens), 1), self.padding)
        shorter = torch.cat([tokens, end], 1).gather(1, order + (order >= here).long())
        return torch.where((lengths >= 2)[:, None], shorter, tokens)


class Duplicate(TextMutation):
    """Say a word twice; of a text that fills its row the last word falls off."""

    def __init__(self, counts: Sequence[int] = (1, 2, 3), padding: int = 0) -> None:
        super().__init__("duplicate", counts, padding)

    @override
    def change(self, tokens: Tensor, lengths: Tensor, keys: Tensor, start: int) -> Tensor:
        here = _place(lengths, keys, start)[:, None]
        order = _columns(tokens)
        return torch.where((lengths >= 1)[:, None], tokens.gather(1, order - (order > here).long()), tokens)


class Shuffle(TextMutation):
    """Put a few words in a row in some order.

    Args:
        counts: how many places are shuffled.
        words: how many words each time.
        padding: the token behind a text's end.
    """

    def __init__(self, counts: Sequence[int] = (1,), words: int = 4, padding: int = 0) -> None:
        super().__init__("shuffle", counts, padding)
        if not 2 <= words <= 7:
            raise InputError(f"shuffle of {words} words: expected 2 to 7")
        self.words = words

    @override
    def change(self, tokens: Tensor, lengths: Tensor, keys: Tensor, start: int) -> Tensor:
        size = min(self.words, tokens.shape[1])
        first = _place(lengths - size + 1, keys, start)[:, None]
        places = first + torch.arange(size, device=tokens.device)
        ranks = uniform(keys[:, None], start + 1 + torch.arange(size, device=tokens.device))
        # Places behind the end of a short text rank last and so stay where they are.
        ranks = torch.where(places < lengths[:, None], ranks, 2.0 + places)
        return tokens.scatter(1, places, tokens.gather(1, places.gather(1, ranks.argsort(1))))

    @override
    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "words": self.words}


class Substitute(TextMutation):
    """Replace a word by one that a table holds for it.

    Args:
        name: what the mutation is called.
        table: ``(vocabulary, k)``: k tokens to take in place of each token.
        counts: how many words.
        padding: the token behind a text's end.
    """

    def __init__(self, name: str, table: Tensor, counts: Sequence[int] = (1, 2, 3), padding: int = 0) -> None:
        super().__init__(name, counts, padding)
        if table.dim() != 2 or table.is_floating_point() or table.shape[1] < 1:
            raise InputError(
                f"mutation {name!r} with a table of type {table.dtype} and shape {tuple(table.shape)}: "
                "expected whole numbers (vocabulary, k)"
            )
        self.table = table

    @override
    def change(self, tokens: Tensor, lengths: Tensor, keys: Tensor, start: int) -> Tensor:
        if self.table.device != tokens.device:
            self.table = self.table.to(tokens.device)
        here = _place(lengths, keys, start)[:, None]
        column = (uniform(keys, start + 1) * self.table.shape[1]).long()
        word = tokens.gather(1, here)[:, 0].long()
        other = self.table[word, column].to(tokens.dtype)[:, None]
        return torch.where((lengths >= 1)[:, None], tokens.scatter(1, here, other), tokens)

    @override
    def identity(self) -> dict[str, Any]:
        content = self.table.cpu().contiguous().numpy()
        return {**super().identity(), "table": hashlib.sha256(content.tobytes()).hexdigest()}


def _columns(tokens: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=tokens.device).expand(len(tokens), -1)


def _place(count: Tensor, keys: Tensor, index: int) -> Tensor:
    """Draw one of the first ``count`` places of each text; 0 where there are none."""
    return (uniform(keys, index) * count.clamp(min=1)).long()


_ROWS = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
_BLOCK = 1024


def typo_table(words: Sequence[str], *, unknown: int, variants: int = 8) -> Tensor:
    """Return ``(words, variants)``: for each word, tokens of what a slip on the keyboard makes of it.

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


def slipped(word: str, slip: int, place: int) -> str:
    """Return a word with one slip, chosen by two numbers.

    >>> [slipped("word", slip, 1) for slip in range(4)]
    ['wird', 'wrd', 'woord', 'wrod']
    """
    at = place % len(word)
    letter = word[at]
    if slip % 4 == 0 and letter in NEIGHBOURS:
        near = NEIGHBOURS[letter]
        return word[:at] + near[(slip // 4 + place // len(word)) % len(near)] + word[at + 1 :]
    if slip % 4 == 1 and len(word) > 1:
        return word[:at] + word[at + 1 :]
    if slip % 4 == 3 and at + 1 < len(word):
        return word[:at] + word[at + 1] + letter + word[at + 2 :]
    return word[:at] + letter + word[at:]


def neighbour_table(vectors: Tensor, *, count: int = 8, keep: Sequence[int] = ()) -> Tensor:
    """Return ``(vocabulary, count)``: for each word those whose vectors point in the most similar directions.

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
    """Return each key's neighbours on an English keyboard, whose rows stand half a key further right one by one."""
    found: dict[str, str] = {}
    for row, keys in enumerate(_ROWS):
        for column, key in enumerate(keys):
            beside = [(row, column - 1), (row, column + 1)]
            places = [*beside, (row - 1, column), (row - 1, column + 1), (row + 1, column - 1), (row + 1, column)]
            near = [_ROWS[r][c] for r, c in places if 0 <= r < len(_ROWS) and 0 <= c < len(_ROWS[r])]
            found[key] = "".join(near)
    return found


NEIGHBOURS: Mapping[str, str] = _neighbours()


def text_mutations(
    words: Sequence[str] | None = None, vectors: Tensor | None = None, *, padding: int = 0, unknown: int = 1
) -> list[Mutation]:
    """Return swap, drop, duplicate, shuffle; typos where words are given, nearby words where their vectors are.

    Args:
        words: the vocabulary, a word per token.
        vectors: ``(vocabulary, dimensions)``, such as a model's own embedding.
        padding: the token behind a text's end.
        unknown: the token of a word that is not in the vocabulary.
    """
    found: list[Mutation] = [
        Swap(padding=padding),
        Drop(padding=padding),
        Duplicate(padding=padding),
        Shuffle(padding=padding),
    ]
    if words is not None:
        found.append(Substitute("typo", typo_table(words, unknown=unknown), padding=padding))
    if vectors is not None:
        found.append(Substitute("nearby word", neighbour_table(vectors, keep=[padding, unknown]), padding=padding))
    return found

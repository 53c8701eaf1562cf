"""Text mutations against plain lists of words, with the places recomputed from each text's key."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralcov.core.errors import InputError
from neuralcov.fuzz import Drop, Duplicate, Shuffle, Substitute, Swap, text_mutations
from neuralcov.fuzz.mutations import MutationDraw
from neuralcov.fuzz.mutations.text import text_lengths
from neuralcov.fuzz.randomness import uniform

LENGTH = 9
texts = st.lists(st.lists(st.integers(1, 20), min_size=0, max_size=LENGTH), min_size=1, max_size=6)


def padded(rows):
    return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows], dtype=torch.int16)


def number(key, index):
    return float(uniform(torch.tensor([key]), index)[0])


def place(key, index, count):
    return int(np.float32(number(key, index)) * np.float32(max(count, 1)))


def plain_swap(words, key, start):
    if len(words) >= 2:
        here = place(key, start, len(words) - 1)
        words[here], words[here + 1] = words[here + 1], words[here]


def plain_drop(words, key, start):
    if len(words) >= 2:
        del words[place(key, start, len(words))]


def plain_duplicate(words, key, start):
    if words:
        here = place(key, start, len(words))
        words.insert(here, words[here])
        del words[LENGTH:]


def plain_shuffle(words, key, start):
    first = place(key, start, len(words) - 3)
    window = words[first : first + 4]
    order = sorted(range(len(window)), key=lambda index: number(key, start + 1 + index))
    words[first : first + 4] = [window[index] for index in order]


TABLE = (3 * torch.arange(21)[:, None] + torch.tensor([[7, 11, 2]])) % 20 + 1


def plain_substitute(words, key, start):
    if words:
        here = place(key, start, len(words))
        words[here] = int(TABLE[words[here], int(number(key, start + 1) * 3)])


CASES = [
    (Swap(), plain_swap),
    (Drop(), plain_drop),
    (Duplicate(), plain_duplicate),
    (Shuffle(), plain_shuffle),
    (Substitute("other", TABLE), plain_substitute),
]


@pytest.mark.parametrize(("mutation", "plain"), CASES, ids=lambda case: getattr(case, "name", ""))
@settings(max_examples=40)
@given(texts, st.integers(0, 2**48 - 1))
def test_against_lists_of_words(mutation, plain, rows, key):
    keys = np.array([(key + 977 * row) % 2**48 for row in range(len(rows))])
    found = mutation.apply(padded(rows), MutationDraw.of_batch(keys))
    for row, key_of_row, result in zip(rows, keys, found, strict=True):
        words = list(row)
        for turn in range(mutation.counts[key_of_row % len(mutation.counts)]):
            plain(words, int(key_of_row), 8 * turn)
        assert result.tolist() == words + [0] * (LENGTH - len(words))


def test_every_place_is_reached():
    swap = Swap(counts=[1])
    rows = padded([list(range(1, LENGTH + 1))] * 400)
    found = swap.apply(rows, MutationDraw.of_batch(swap.choose((np.arange(400) + 0.5) / 400)))
    first_change = (found != rows).int().argmax(1)
    assert set(first_change.tolist()) == set(range(LENGTH - 1))


def test_lengths_end_at_the_last_word():
    assert text_lengths(torch.tensor([[3, 0, 4, 0], [0, 0, 0, 0], [1, 2, 3, 4]]), 0).tolist() == [3, 0, 4]


def test_the_usual_mutations():
    assert [found.name for found in text_mutations()] == ["swap", "drop", "duplicate", "shuffle"]
    words = ["<pad>", "<unk>", *(f"word{index}" for index in range(12))]
    more = text_mutations(words, torch.randn(14, 5))
    assert [found.name for found in more][4:] == ["typo", "nearby word"]
    assert not any(found.geometric for found in more)
    assert more[0].describe(4) == "swap ×2 with key 4"


def test_wrong_settings():
    with pytest.raises(InputError, match="numbers of at least 1"):
        Swap(counts=[0])
    with pytest.raises(InputError, match="expected 2 to 7"):
        Shuffle(words=1)
    with pytest.raises(InputError, match=r"expected whole numbers \(vocabulary, k\)"):
        Substitute("typo", torch.zeros(3))

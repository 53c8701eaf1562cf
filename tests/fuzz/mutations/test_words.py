import numpy as np
import pytest
import torch

from neuralcov.core.errors import InputError
from neuralcov.fuzz import neighbour_table, typo_table
from neuralcov.fuzz.mutations.text import NEIGHBOURS, slipped


def test_typos_are_one_slip_away():
    words = ["<pad>", "<unk>", "film", "great", "a", "fim", "flim", "grat", "i'm"]
    table = typo_table(words, unknown=1, variants=64)
    for word, row in zip(words[2:], table[2:].tolist(), strict=True):
        for token in row:
            assert token == 1 or token >= 2
            assert token == 1 or _one_slip(word, words[token])
    # Enough slips of "film" were drawn to hit the words that are one slip away.
    assert {words[token] for token in table[2].tolist()} >= {"fim", "flim"}
    assert table[0].tolist() == [0] * 64
    assert torch.equal(table, typo_table(words, unknown=1, variants=64))


def _one_slip(word, other):
    if abs(len(word) - len(other)) == 1:
        longer, shorter = sorted((word, other), key=len, reverse=True)
        return any(longer[:place] + longer[place + 1 :] == shorter for place in range(len(longer)))
    differences = [place for place, (a, b) in enumerate(zip(word, other, strict=True)) if a != b]
    swapped = len(differences) == 2 and word[differences[0]] == other[differences[1]]
    return swapped or (len(differences) == 1 and other[differences[0]] in NEIGHBOURS[word[differences[0]]])


@pytest.mark.parametrize("word", ["word", "a", "don't", "7"])
def test_a_slip_always_changes_the_word(word):
    letters = len(set(word)) > 1
    for kind in range(8):
        for place in range(8):
            slip = slipped(word, kind, place)
            assert slip
            assert slip != word or (letters and kind % 4 == 3)


def test_neighbours_on_the_keyboard_are_mutual():
    assert "w" in NEIGHBOURS["q"]
    assert all(key in NEIGHBOURS[near] for key, keys in NEIGHBOURS.items() for near in keys)


def test_nearby_words_against_brute_force():
    vectors = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    table = neighbour_table(vectors, count=4, keep=[0, 1])
    unit = vectors.numpy() / np.linalg.norm(vectors.numpy(), axis=1, keepdims=True)
    for word in range(2, 50):
        others = [other for other in range(2, 50) if other != word]
        wanted = sorted(others, key=lambda other: -float(unit[word] @ unit[other]))[:4]
        assert table[word].tolist() == wanted
    assert table[:2].tolist() == [[0] * 4, [1] * 4]
    with pytest.raises(InputError, match="fewer neighbours than words"):
        neighbour_table(vectors[:4], count=4)

"""Validity as defined, position by position, and its edges; edit distance against the textbook."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neuralcov.core.errors import InputError
from neuralcov.fuzz import PixelRule, WordRule
from neuralcov.fuzz.formats import Pixels, Tokens
from neuralcov.fuzz.validity import edit_distance, usual_rule

bytes_ = hnp.arrays(np.uint8, (2, 3, 4))


def plainly(mutant, reference, alpha, beta, top):
    changed = largest = 0
    for y in range(mutant.shape[1]):
        for x in range(mutant.shape[2]):
            difference = [abs(int(a) - int(b)) for a, b in zip(mutant[:, y, x], reference[:, y, x], strict=True)]
            changed += any(difference)
            largest = max(largest, *difference)
    few, little = Fraction(str(alpha)) * mutant.shape[1] * mutant.shape[2], Fraction(str(beta)) * top
    return changed < few or largest < little


@settings(max_examples=150)
@given(bytes_, bytes_, hnp.arrays(bool, (2, 3, 4)), st.floats(0, 1), st.floats(0, 1))
def test_pixels_as_defined(one, other, same, alpha, beta):
    other = np.where(same, one, other)
    rule = PixelRule(alpha, beta)
    found = rule(torch.from_numpy(one)[None], torch.from_numpy(other)[None])
    assert bool(found[0]) == plainly(one, other, alpha, beta, 255)


def test_both_limits_are_exclusive():
    reference = torch.full((1, 3, 10, 10), 100, dtype=torch.uint8)
    rule = PixelRule(alpha=0.2, beta=0.4)
    below, at = reference.clone(), reference.clone()
    below[0, 1].view(-1)[:19] = 255
    at[0, 1].view(-1)[:20] = 255
    assert rule(torch.cat([below, at]), reference.expand(2, -1, -1, -1)).tolist() == [True, False]
    largest = torch.stack([reference[0] + 101, reference[0] + 102])
    assert rule(largest, reference.expand(2, -1, -1, -1)).tolist() == [True, False]


@pytest.mark.parametrize("percent", range(101))
def test_limits_are_shares_as_they_are_written(percent):
    """As a product of floats, 0.07 of 100 is above 7, and 0.14, 0.28, 0.55 and 0.56 go the same way."""
    share = percent / 100
    reference = torch.zeros(1, 1, 10, 10, dtype=torch.uint8)
    mutants = torch.zeros(2, 1, 100, dtype=torch.uint8)
    mutants[0, 0, : max(0, percent - 1)] = mutants[1, 0, :percent] = 255
    found = PixelRule(alpha=share, beta=0)(mutants.reshape(2, 1, 10, 10), reference.expand(2, -1, -1, -1))
    assert found.tolist() == [percent > 0, False]
    shades = torch.tensor([max(0, percent - 1), percent], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 1, 10, 10)
    found = PixelRule(alpha=0, beta=share, range=100)(shades, reference.expand(2, -1, -1, -1))
    assert found.tolist() == [percent > 0, False]
    text = torch.arange(1, 101).expand(2, -1)
    changed = text.clone()
    changed[0, : max(0, percent - 1)] = changed[1, :percent] = 999
    assert WordRule(alpha=share)(changed, text).tolist() == [percent > 0, False]


def test_several_channels_of_one_position_count_once():
    reference = torch.zeros(1, 3, 2, 5, dtype=torch.uint8)
    mutant = reference.clone()
    mutant[0, :, 0, 0] = 255
    assert PixelRule(alpha=0.2)(mutant, reference).tolist() == [True]
    mutant[0, 2, 0, 1] = 255
    assert PixelRule(alpha=0.2)(mutant, reference).tolist() == [False]


def test_floats_and_plain_rows():
    rule = usual_rule(Pixels(None), 0.2, 0.4)
    assert rule(torch.tensor([[0.0, 0.39], [0.0, 0.41]]), torch.zeros(2, 2)).tolist() == [True, False]


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.lists(st.integers(1, 4), max_size=7)] * 2), min_size=1, max_size=5))
def test_edit_distance_against_the_textbook(pairs):
    rows = [torch.tensor([words + [0] * (7 - len(words)) for words in side]) for side in zip(*pairs, strict=True)]
    assert edit_distance(*rows).tolist() == [levenshtein(*pair) for pair in pairs]


def levenshtein(one, other):
    table = np.zeros((len(one) + 1, len(other) + 1), dtype=int)
    table[:, 0], table[0] = np.arange(len(one) + 1), np.arange(len(other) + 1)
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a != b))
    return int(table[-1, -1])


def test_words_count_edits_not_positions():
    rule = usual_rule(Tokens(padding=0), 0.2, 0.4)
    text = torch.arange(1, 11)[None]
    dropped = torch.cat([text[:, 1:], torch.zeros(1, 1, dtype=torch.int64)], 1)
    assert rule(dropped, text).tolist() == [True]
    twice = torch.cat([text[:, 2:], torch.zeros(1, 2, dtype=torch.int64)], 1)
    assert rule(twice, text).tolist() == [False]


@pytest.mark.parametrize("rule", [PixelRule, WordRule])
def test_shares_are_shares(rule):
    with pytest.raises(InputError, match=r"alpha=1\.2: expected a share from 0 to 1"):
        rule(alpha=1.2)

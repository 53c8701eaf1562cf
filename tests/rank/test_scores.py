"""Scores of outputs against NumPy and SciPy, and average ranks against SciPy's."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import special, stats

from neuralcov.rank.scores import average_ranks, confidence

LOGITS = arrays.arrays(np.float64, (7, 4), elements=st.floats(-40, 40))


@settings(max_examples=50, deadline=None)
@given(logits=LOGITS)
@example(logits=np.eye(4)[[0, 1, 2, 3, 0, 1, 2]])
def test_scores_follow_their_formulas(logits):
    found = confidence(torch.from_numpy(logits), 7)
    # Rows such as (1, 0, 0, 0) are probabilities already.
    given_as = (logits >= 0).all(1) & (abs(logits.sum(1) - 1) <= 1e-3)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(given_as[:, None], logits / logits.sum(1, keepdims=True), special.softmax(logits, axis=1))
    ordered = np.sort(shares, axis=1)[:, ::-1]
    np.testing.assert_allclose(found.margin.numpy(), ordered[:, 0] - ordered[:, 1], atol=1e-15)
    np.testing.assert_allclose(found.gini.numpy(), 1 - (shares**2).sum(1), atol=1e-14)
    np.testing.assert_allclose(found.entropy.numpy(), stats.entropy(shares, axis=1), atol=1e-13)
    order = np.argsort(-shares, axis=1, kind="stable")
    assert found.first.tolist() == order[:, 0].tolist()
    assert found.second.tolist() == order[:, 1].tolist()


def test_gini_keeps_its_digits_where_the_model_is_sure():
    found = confidence(torch.tensor([[50.0, 0.0]]), 1)
    assert float(found.gini[0]) == pytest.approx(2 * np.exp(-50), rel=1e-9)


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_number_is_two_classes(shape):
    numbers = torch.tensor([2.0, -1.0, 0.5])
    found = confidence(numbers.reshape(shape), 3)
    chance = special.expit(numbers.double().numpy())
    np.testing.assert_allclose(found.margin.numpy(), abs(2 * chance - 1))
    assert found.first.tolist() == [1, 0, 1]


def test_probabilities_are_not_levelled_by_a_second_softmax():
    shares = torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25]])
    found = confidence(shares, 2)
    np.testing.assert_allclose(found.margin.numpy(), [0.5, 0.05], rtol=1e-6)
    np.testing.assert_allclose(found.entropy.numpy(), stats.entropy(shares.numpy(), axis=1), rtol=1e-6)
    assert found.were_probabilities.all()
    logs = confidence(shares.log(), 2)
    np.testing.assert_allclose(logs.margin.numpy(), [0.5, 0.05], rtol=1e-6)


def test_outputs_without_classes_have_no_margin():
    assert confidence(torch.zeros(2, 3, 4), 2) is None
    assert confidence({"hidden": torch.zeros(2, 3, 4)}, 2) is None


def test_what_is_not_finite_is_not_a_number():
    found = confidence(torch.tensor([[1.0, torch.nan], [0.0, torch.inf], [1.0, 0.0]]), 3)
    assert found.margin.isnan().tolist() == [True, True, False]
    assert found.gini.isnan().tolist() == found.entropy.isnan().tolist() == [True, True, False]


@settings(max_examples=100, deadline=None)
@given(scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, -3.0]), max_size=12), largest=st.booleans())
def test_average_ranks_are_scipys(scores, largest):
    numbers = np.array(scores)
    expected = stats.rankdata(-numbers if largest else numbers)
    np.testing.assert_array_equal(average_ranks(numbers, largest_first=largest), expected)


def test_what_has_no_score_takes_the_mean_rank():
    assert average_ranks(np.array([np.nan, 5.0, 1.0, 3.0])).tolist() == [2, 3, 1, 2]
    assert average_ranks(np.array([np.nan, np.nan])).tolist() == [0.5, 0.5]

"""Margins against a softmax by SciPy, one input at a time."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.special import softmax

from neuralcov.tap.probabilities import PREDICTED, margins

SCORES = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.integers(2, 6)), elements=st.floats(-20, 20, width=32)
)


@given(SCORES, st.integers(0, 5))
def test_margins_of_scores(scores, target):
    targets = np.full(len(scores), target % scores.shape[1])
    found, rivals = margins(torch.from_numpy(scores), torch.from_numpy(targets))
    for row, (scored, own) in enumerate(zip(scores.astype(np.float64), targets, strict=True)):
        given_as = (scored >= 0).all() and abs(scored.sum() - 1) <= 1e-3
        shares = scored / scored.sum() if given_as else softmax(scored)
        others = [(share, -place) for place, share in enumerate(shares) if place != own]
        best, place = max(others)
        np.testing.assert_allclose(found[row], shares[own] - best, atol=1e-12)
        assert shares[int(rivals[row])] == best
        assert int(rivals[row]) == -place


def test_unknown_classes_nan_and_outputs_without_classes():
    scores = torch.tensor([[0.0, 1.0], [float("nan"), 1.0], [0.0, 1.0], [3.0, 1.0]])
    found, rivals = margins(scores, torch.tensor([-1, 0, 7, PREDICTED]))
    assert found.isnan().tolist() == [True, True, True, False]
    assert rivals.tolist() == [-1, -1, -1, 1]
    assert float(found[3]) > 0
    assert margins(torch.zeros(2, 3, 4), torch.zeros(2, dtype=torch.long)) is None
    one, _ = margins(torch.tensor([[2.0], [-2.0]]), torch.tensor([1, 1]))
    assert float(one[0]) == -float(one[1]) > 0.7

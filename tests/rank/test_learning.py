"""Logistic regression against scikit-learn and SciPy; labels as people give them."""

import numpy as np
import pytest
import torch
from scipy import optimize
from sklearn.linear_model import LogisticRegression

from neuralcov.core.errors import InputError
from neuralcov.rank.learning import fit_logistic, read_labels


def rows(count=300, width=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64)
    chance = torch.sigmoid(features @ torch.linspace(-1, 2, width, dtype=torch.float64) - 2)
    return features, torch.rand(count, generator=generator, dtype=torch.float64) < chance


@pytest.mark.parametrize("ridge", [0.1, 1.0, 25.0])
def test_it_is_scikit_learns(ridge):
    features, positive = rows()
    found = fit_logistic(features, positive, ridge=ridge)
    theirs = LogisticRegression(C=1 / ridge, tol=1e-12, max_iter=10_000).fit(features.numpy(), positive.numpy())
    np.testing.assert_allclose(found.weights.numpy(), theirs.coef_[0], atol=1e-5)
    assert found.intercept == pytest.approx(theirs.intercept_[0], abs=1e-5)


def test_weights_are_held_to_what_is_expected():
    features, positive = rows(count=40)
    prior = torch.tensor([0, 2.0, 0, 1.0, 0, 0, 0], dtype=torch.float64)
    found = fit_logistic(features, positive, ridge=3.0, prior=prior)
    signs = np.where(positive.numpy(), 1, -1)

    def loss(weights):
        fit = np.logaddexp(0, -signs * (features.numpy() @ weights[:-1] + weights[-1])).sum()
        return fit + 1.5 * ((weights[:-1] - prior.numpy()) ** 2).sum()

    best = optimize.minimize(loss, np.zeros(8), tol=1e-12).x
    np.testing.assert_allclose([*found.weights.tolist(), found.intercept], best, atol=1e-4)


def test_separable_rows_have_finite_weights():
    features = torch.linspace(-100, 100, 50, dtype=torch.float64)[:, None]
    found = fit_logistic(features, features[:, 0] > 0, ridge=1e-3)
    assert found.weights.isfinite().all()
    assert float(found.weights[0]) > 0


def test_labels_of_a_file(tmp_path):
    (tmp_path / "a.csv").write_text("label,id,who\n3,a.png,Ann\n,b.png,Bob\n7,c.png,Cid\n")
    assert read_labels(tmp_path / "a.csv") == {"a.png": 3, "c.png": 7}
    (tmp_path / "a.jsonl").write_text('{"id": 5, "label": 1}\n\n{"id": 6, "label": null}\n')
    assert read_labels(str(tmp_path / "a.jsonl")) == {"5": 1}
    assert read_labels(torch.tensor([-1, 4])) == {"1": 4}


def test_labels_that_are_none(tmp_path):
    (tmp_path / "a.csv").write_text("name,class\nx,1\n")
    with pytest.raises(InputError, match="columns id and label"):
        read_labels(tmp_path / "a.csv")
    with pytest.raises(InputError, match="there is none"):
        read_labels([None, -1])
    with pytest.raises(InputError, match="'cat' of 'x': expected the number of a class"):
        read_labels({"x": "cat"})
    with pytest.raises(InputError, match=r"1\.5"):
        read_labels({"x": 1.5})

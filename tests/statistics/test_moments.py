import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.core.activations import Stack
from neuralcov.criteria.lvc.folds import leaving_out
from neuralcov.statistics.moments import LayerMoments


def of(rows, counted=None):
    """Moments of rows of shape (batch, layers, width)."""
    return LayerMoments.empty(rows.shape[1], rows.shape[2], rows.device).absorb(Stack(rows, counted))


def assert_equal(moments, rows):
    for layer in range(rows.shape[1]):
        values = rows[:, layer].double().numpy()
        assert moments.count[layer] == len(values)
        np.testing.assert_allclose(moments.mean[layer], values.mean(0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moments.covariance[layer], np.cov(values.T, bias=True), rtol=1e-9, atol=1e-12)


@given(st.integers(0, 2**31), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_absorbing_and_merging_equal_numpy(seed, sizes):
    rows = torch.randn(sum(sizes), 2, 3, generator=torch.Generator().manual_seed(seed)) * 2 + 50
    parts = rows.split(sizes)
    absorbed, merged = of(parts[0]), of(parts[0])
    for part in parts[1:]:
        absorbed = absorbed.absorb(Stack(part, None), donate=True)
        merged = merged.merge(of(part))
    assert_equal(absorbed, rows)
    assert_equal(merged, rows)
    left_out = [part[0] for part in leaving_out(tuple((of(part),) for part in parts))]
    assert len(left_out) == (len(parts) if len(parts) > 1 else 0)
    for index, rest in enumerate(left_out):
        assert_equal(rest, torch.cat([part for i, part in enumerate(parts) if i != index]))


def test_rows_that_do_not_count():
    rows = torch.randn(6, 2, 3)
    counted = torch.tensor([[True, False]] * 3 + [[True, True]] * 3)
    moments = of(rows.masked_fill(~counted[:, :, None], 0), counted)
    assert moments.count.tolist() == [6, 3]
    np.testing.assert_allclose(moments.covariance[1], np.cov(rows[3:, 1].double().numpy().T, bias=True))


def test_a_large_mean_costs_no_digits():
    rows = (torch.randn(1000, 1, 2, dtype=torch.float64) + 1e8).float()
    one_by_one = LayerMoments.empty(1, 2, torch.device("cpu"))
    for row in rows:
        one_by_one = one_by_one.absorb(Stack(row[None], None), donate=True)
    expected = np.cov(rows[:, 0].double().numpy().T, bias=True)
    np.testing.assert_allclose(one_by_one.covariance[0], expected, rtol=1e-6, atol=1e-6)


def test_choose():
    a, b = of(torch.randn(5, 2, 3)), of(torch.randn(7, 2, 3))
    chosen = a.choose(b, torch.tensor([True, False]))
    assert chosen.count.tolist() == [5, 7]
    assert torch.equal(chosen.scatter[1], b.scatter[1])
    assert torch.equal(chosen.mean[0], a.mean[0])


def test_covariance_of_nothing_is_zero():
    empty = LayerMoments.empty(1, 2, torch.device("cpu"))
    assert not empty.covariance.any()
    assert pytest.approx(0) == float(empty.merge(empty).scatter.sum())

import numpy as np
import pytest

import neuralcov as nc
from tests.support import FLAVOURS, WIDTHS, layer_values, suite, value_of


def brute_force(tests, threshold):
    """Covered neurons per layer, straight from the definition, in float64."""
    covered = {}
    for name, values in tests.items():
        hit = np.zeros(values.shape[1], dtype=bool)
        for row in values.astype(np.float64):
            low, high = row.min(), row.max()
            scaled = np.zeros_like(row) if high == low else (row - low) / (high - low)
            hit |= scaled > threshold
        covered[name] = int(hit.sum())
    return covered


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("threshold", [0, 0.25, 0.5, 0.75])
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (23, 5)])
def test_equals_brute_force(flavour, threshold, size, batch):
    tests = suite(3, size, flavour)
    covered = brute_force(tests, threshold)
    assert value_of(nc.NC(threshold), tests, batch=batch) == sum(covered.values()) / sum(WIDTHS.values())
    shares = layer_values(nc.NC(threshold), tests)
    assert shares == {name: covered[name] / WIDTHS[name] for name in WIDTHS}


def test_a_single_neuron_scales_to_zero():
    assert value_of(nc.NC(0), {"a": np.array([[3.0], [5.0]], dtype=np.float32)}) == 0


def test_decided_in_float64():
    # In float32 the quotient rounds to exactly 0.75 and would not exceed it.
    outputs = np.array([[0.0, 0.75000003, 1.0]], dtype=np.float32)
    assert outputs[0, 1] > 0.75
    assert value_of(nc.NC(0.75), {"a": outputs}) == pytest.approx(2 / 3)


@pytest.mark.parametrize("threshold", [-0.1, 1, 1.5, float("nan"), "high", True])
def test_threshold_out_of_range(threshold):
    with pytest.raises(nc.NeuralcovError, match=r"NC\(threshold=.*\): threshold must be"):
        nc.NC(threshold)

import numpy as np
import pytest

import neuralcov as nc
from tests.support import FLAVOURS, WIDTHS, layer_values, suite, value_of


def brute_force(tests, k):
    """Neurons once among the k largest of their layer, ties to the lower index."""
    covered = set()
    for name, values in tests.items():
        for row in values.astype(np.float64):
            ranked = sorted(range(len(row)), key=lambda neuron: (-row[neuron], neuron))
            covered.update((name, neuron) for neuron in ranked[:k])
    return covered


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("k", [1, 3, 6, 50])
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (23, 5)])
def test_equals_brute_force(flavour, k, size, batch):
    tests = suite(5, size, flavour)
    covered = brute_force(tests, k)
    assert value_of(nc.TKNC(k), tests, batch=batch) == len(covered) / sum(WIDTHS.values())
    by_layer = layer_values(nc.TKNC(k), tests)
    assert by_layer == {name: sum(layer == name for layer, _ in covered) / width for name, width in WIDTHS.items()}


def test_ties_in_half_precision_go_to_the_lower_index():
    rng = np.random.default_rng(0)
    import torch

    halves = torch.from_numpy(rng.standard_normal((50, 300))).bfloat16().float().numpy()
    assert any(len(np.unique(row)) < 300 for row in halves)
    assert value_of(nc.TKNC(50), {"a": halves}) == len(brute_force({"a": halves}, 50)) / 300


@pytest.mark.parametrize("k", [0, 1.5, "ten"])
def test_k_out_of_range(k):
    with pytest.raises(nc.NeuralcovError, match=r"TKNC\(k=.*\): k must be"):
        nc.TKNC(k)

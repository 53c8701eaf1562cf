import math

import numpy as np
import pytest

import neuralcov as nc
from tests.support import FLAVOURS, WIDTHS, layer_values, suite, value_of


def brute_force(tests, training, sections):
    """The set of covered (layer, neuron, section), straight from the definition, in float64."""
    covered = set()
    for name, values in tests.items():
        low, high = (f(training[name].astype(np.float64), axis=0) for f in (np.min, np.max))
        for row in values.astype(np.float64):
            for neuron, a in enumerate(row):
                lo, hi = low[neuron], high[neuron]
                if lo < hi and lo <= a <= hi:
                    covered.add((name, neuron, min(math.floor((a - lo) / (hi - lo) * sections), sections - 1)))
    return covered


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("sections", [1, 2, 10, 1000])
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (23, 5)])
def test_equals_brute_force(flavour, sections, size, batch):
    training, tests = suite(1, 40, flavour), suite(2, size, flavour)
    covered = brute_force(tests, training, sections)
    neurons = sum(WIDTHS.values())
    assert value_of(nc.KMNC(sections), tests, training, batch) == len(covered) / (sections * neurons)
    by_layer = layer_values(nc.KMNC(sections), tests, training)
    for name, width in WIDTHS.items():
        assert by_layer[name] == sum(layer == name for layer, _, _ in covered) / (sections * width)


def test_both_ends_of_the_range_count():
    training = {"a": np.array([[0.0], [1.0]], dtype=np.float32)}
    tests = {"a": np.array([[0.0], [1.0], [1.0001], [-0.0001]], dtype=np.float32)}
    assert value_of(nc.KMNC(10), tests, training) == 2 / 10


def test_a_neuron_constant_in_training_covers_nothing():
    training = {"a": np.full((4, 1), 2.0, dtype=np.float32)}
    assert value_of(nc.KMNC(10), {"a": np.full((1, 1), 2.0, dtype=np.float32)}, training) == 0


@pytest.mark.parametrize("sections", [0, -3, 2.5, True, "many"])
def test_sections_out_of_range(sections):
    with pytest.raises(nc.NeuralcovError, match=r"KMNC\(sections=.*\): sections must be"):
        nc.KMNC(sections)

import numpy as np
import pytest

import neuralcov as nc
from tests.support import FLAVOURS, WIDTHS, layer_values, suite, value_of


def brute_force(tests, training):
    """The set of covered (layer, neuron, corner), straight from the definition."""
    covered = set()
    for name, values in tests.items():
        for row in values:
            for neuron, a in enumerate(row):
                if a > training[name][:, neuron].max():
                    covered.add((name, neuron, "upper"))
                if a < training[name][:, neuron].min():
                    covered.add((name, neuron, "lower"))
    return covered


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (23, 5)])
def test_equals_brute_force(flavour, size, batch):
    training, tests = suite(1, 9, flavour), suite(2, size, flavour, spread=1.5)
    covered = brute_force(tests, training)
    assert value_of(nc.NBC(), tests, training, batch) == len(covered) / (2 * sum(WIDTHS.values()))
    by_layer = layer_values(nc.NBC(), tests, training)
    for name, width in WIDTHS.items():
        assert by_layer[name] == sum(layer == name for layer, _, _ in covered) / (2 * width)


def test_the_ends_of_the_range_are_no_corners():
    training = {"a": np.array([[-1.0], [1.0]], dtype=np.float32)}
    assert value_of(nc.NBC(), training, training) == 0

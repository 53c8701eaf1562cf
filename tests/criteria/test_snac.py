import pytest

import neuralcov as nc
from tests.support import FLAVOURS, WIDTHS, layer_values, suite, value_of


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (23, 5)])
def test_equals_brute_force(flavour, size, batch):
    training, tests = suite(1, 9, flavour), suite(2, size, flavour, spread=1.5)
    covered = {
        (name, neuron)
        for name, values in tests.items()
        for row in values
        for neuron, a in enumerate(row)
        if a > training[name][:, neuron].max()
    }
    assert value_of(nc.SNAC(), tests, training, batch) == len(covered) / sum(WIDTHS.values())
    by_layer = layer_values(nc.SNAC(), tests, training)
    assert by_layer == {name: sum(layer == name for layer, _ in covered) / width for name, width in WIDTHS.items()}

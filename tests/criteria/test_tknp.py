import numpy as np
import pytest
import torch

import neuralcov as nc
from tests.support import FLAVOURS, covered, suite, value_of


def brute_force(tests, k):
    """The set of tuples of frozen sets, ties to the lower index."""
    size = len(next(iter(tests.values())))
    patterns = set()
    for row in range(size):
        pattern = []
        for values in tests.values():
            outputs = values[row].astype(np.float64)
            pattern.append(frozenset(sorted(range(len(outputs)), key=lambda i: (-outputs[i], i))[:k]))
        patterns.add(tuple(pattern))
    return patterns


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("k", [1, 2, 6, 50])
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (37, 5), (60, 60)])
def test_equals_brute_force(flavour, k, size, batch):
    tests = suite(5, size, flavour)
    assert value_of(nc.TKNP(k), tests, batch=batch) == len(brute_force(tests, k))


def test_the_same_neurons_in_another_layer_are_another_pattern():
    tests = {"a": np.array([[1.0, 0], [0, 1]]), "b": np.array([[0, 1.0], [1, 0]])}
    assert value_of(nc.TKNP(1), {n: v.astype(np.float32) for n, v in tests.items()}) == 2


def test_state_grows_with_distinct_patterns_only():
    tests = suite(1, 8)
    many = {name: np.tile(values, (50, 1)) for name, values in tests.items()}
    coverage = covered(nc.TKNP(1), many, batch=7)
    assert len(coverage.states[0].seen.keys) == len(brute_force(tests, 1))


def test_absent_steps_read_as_zeros():
    layers = {"a": torch.tensor([[5.0, 1.0, 0.0]] * 2), "b": torch.tensor([[1.0, 2.0, 3.0]] * 2)}
    batch = nc.Activations(layers, present={"b": torch.tensor([True, False])})
    coverage = nc.Coverage.of_layers({"a": 3, "b": 3}, [nc.TKNP(1)])
    coverage.update(activations=batch)
    assert coverage.values()["TKNP(1)"] == 2
    zeros = nc.Activations({**layers, "b": torch.zeros(2, 3)})
    assert coverage.gain(activations=zeros)["TKNP(1)"].tolist() == [0, 0]


def test_k_out_of_range():
    with pytest.raises(nc.NeuralcovError, match=r"TKNP\(k=0\): k must be at least 1"):
        nc.TKNP(0)

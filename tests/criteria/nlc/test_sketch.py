"""NLC along random directions: another number, right for what it is, of fixed size."""

import hashlib

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.testing import check_criterion

M64 = (1 << 64) - 1


def mix(number):
    """SplitMix64 as its authors give it."""
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & M64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & M64
    return number ^ (number >> 31)


def directions(name, width, count):
    start = int.from_bytes(hashlib.sha256(f"neuralcov.projection/{name}".encode()).digest()[:8], "little")
    tops = [mix((start + place * 0x9E3779B97F4A7C15) & M64) >> 63 for place in range(width * count)]
    return np.array([1.0 if top else -1.0 for top in tops]).reshape(width, count) / width**0.5


@pytest.mark.parametrize(
    "criterion",
    [nc.NLC(sketch=2), nc.NLC(rule="all", sketch=3), nc.NLC(classes=3, sketch=2)],
    ids=lambda criterion: criterion.name,
)
def test_laws(criterion):
    check_criterion(criterion)


def test_the_value_is_that_of_the_projection():
    generator = torch.Generator().manual_seed(0)
    layers = {"wide": torch.randn(50, 40, generator=generator), "narrow": torch.randn(50, 6, generator=generator)}
    cov = nc.Coverage.of_layers({"wide": 40, "narrow": 6}, [nc.NLC(rule="all", sketch=8)])
    cov.update(activations=layers)
    expected = 0.0
    for name, outputs in layers.items():
        rows = outputs.double().numpy()
        if name == "wide":
            rows = rows @ directions(name, 40, 8)
        covariance = np.cov(rows, rowvar=False, bias=True)
        expected += np.abs(covariance).sum() / rows.shape[1] ** 2
    assert cov.values() == {"NLC(rule=all, sketch=8)": pytest.approx(expected, rel=1e-12)}
    assert [row.neurons for row in cov.by_layer()] == [40, 6]
    again = nc.Coverage.from_bytes(cov.to_bytes())
    assert again.values() == cov.values()
    with pytest.raises(nc.NeuralcovError, match="criteria differ"):
        again.merge(nc.Coverage.of_layers({"wide": 40, "narrow": 6}, [nc.NLC(rule="all")]))


def test_wide_layers_fit():
    cov = nc.Coverage.of_layers({"wide": 200_000}, [nc.NLC(sketch=16)])
    with pytest.raises(nc.NeuralcovError, match=r"need 320 GB .* or give sketch="):
        nc.Coverage.of_layers({"wide": 200_000}, [nc.NLC()]).update(activations={"wide": torch.zeros(2, 200_000)})
    cov.update(activations={"wide": torch.randn(20, 200_000, generator=torch.Generator().manual_seed(1))})
    assert sum(part.scatter.numel() for entry in cov.states[0].classes for part in [entry[0].moments]) == 16 * 16
    assert cov.values()["NLC(sketch=16)"] > 0

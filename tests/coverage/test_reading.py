"""Values as text, uncovered neurons, and loaders where a batch is taken."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcov as nc
from neuralcov.core.errors import HyperParameterError, InputError
from neuralcov.report.text import show_value


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))


def test_print_shows_values(model):
    cov = nc.Coverage(model, [nc.NC(0.75), nc.TKNP(2)])
    assert str(cov) == repr(cov)
    cov.update(torch.randn(20, 5))
    lines = str(cov).splitlines()
    assert lines[0] == "20 inputs on 2 layers, 10 neurons"
    assert lines[1].split()[:2] == ["NC(0.75)", show_value(cov.values()["NC(0.75)"])]
    assert "chance that the next input shows a new kind" in lines[2]


@pytest.mark.parametrize("criterion", [nc.NC(0.5), nc.TKNC(1), nc.KMNC(4), nc.SNAC()], ids=lambda c: c.name)
def test_uncovered_neurons_by_brute_force(model, criterion):
    cov = nc.Coverage(model, [criterion, nc.TKNP(2)])
    cov.calibrate([torch.randn(50, 5)])
    x = torch.randn(3, 5)
    cov.update(x)
    found = cov.uncovered()
    assert list(found) == [criterion.name]
    # A neuron of which nothing is covered adds nothing by layer.
    for layer, row in zip(("0", "2"), cov.by_layer(), strict=True):
        missing = found[criterion.name].get(layer, ())
        assert list(missing) == sorted(set(missing))
        shares = row.values[criterion.name]
        if criterion.name.startswith("KMNC"):
            assert shares <= 1 - len(missing) / row.neurons
        else:
            assert shares == pytest.approx(1 - len(missing) / row.neurons)
    first = model[0](x).detach()
    if criterion.name == "TKNC(1)":
        assert set(range(7)) - set(found["TKNC(1)"]["0"]) == set(first.argmax(1).tolist())


def test_gain_scores_and_admit_take_loaders(model):
    x = torch.randn(40, 5)
    labels = torch.arange(40) % 3
    cov = nc.Coverage(model, [nc.NC(0.5), nc.DSC(0.1, by="label")])
    cov.calibrate(DataLoader(TensorDataset(torch.randn(60, 5), torch.arange(60) % 3), batch_size=20))
    cov.update(x[:5], labels[:5])
    loader = DataLoader(TensorDataset(x, labels), batch_size=16)
    for name, gains in cov.gain(loader).items():
        assert torch.equal(gains, cov.gain(x, labels)[name])
    assert torch.equal(cov.scores(iter(loader))["DSC(0.1, by=label)"], cov.scores(x, labels)["DSC(0.1, by=label)"])
    pairs = [(x[:20], labels[:20]), (x[20:], labels[20:])]
    twin = cov.fork()
    assert torch.equal(cov.admit(pairs), twin.admit(x, labels))
    assert cov.values() == twin.values()
    with pytest.raises(InputError, match="batches of a loader carry their own"):
        cov.gain(loader, labels)
    with pytest.raises(InputError, match="gave no batch"):
        cov.gain(iter(()))


def test_fewer_training_traces():
    x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    few = nc.Coverage.of_layers({"fc": 4}, [nc.DSC(0.1, traces=20), nc.DSC(0.1)])
    few.calibrate(activations={"fc": x}, predictions=torch.arange(100) % 2)
    # Every fifth, and of these the odd and the even ones.
    same = nc.Coverage.of_layers({"fc": 4}, [nc.DSC(0.1)])
    same.calibrate(activations={"fc": x[::5]}, predictions=(torch.arange(100) % 2)[::5])
    y = torch.randn(30, 4)
    scores = few.scores(activations={"fc": y}, predictions=torch.arange(30) % 2)
    alone = same.scores(activations={"fc": y}, predictions=torch.arange(30) % 2)["DSC(0.1)"]
    assert torch.equal(scores["DSC(0.1, traces=20)"], alone)
    assert not torch.equal(scores["DSC(0.1)"], alone)
    with pytest.raises(HyperParameterError, match="traces must be"):
        nc.DSC(0.1, traces=0)


def test_activations_of_arrays_of_other_libraries():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    given = values.float().numpy().astype(ml_dtypes.bfloat16)
    labels = np.arange(9) % 2
    one, other = (nc.Coverage.of_layers({"fc": 4}, [nc.NLC(rule="all"), nc.LSC(1, by="label")]) for _ in range(2))
    for coverage, batch in (
        (one, nc.Activations({"fc": given}, labels=labels)),
        (other, nc.Activations({"fc": values.float()}, labels=torch.from_numpy(labels))),
    ):
        coverage.calibrate(activations=batch)
        coverage.update(activations=batch)
    assert one.values() == other.values()
    with pytest.raises(nc.NeuralcovError, match=r"labels of type .* and shape \(2,\): expected 9 integers"):
        one.update(activations=nc.Activations({"fc": given}, labels=np.arange(2)))

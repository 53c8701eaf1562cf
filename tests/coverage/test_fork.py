"""Copies of a coverage: the same model, options, calibration and state, and nothing shared that changes."""

import copy

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.coverage.cuda_graph import Recorder
from neuralcov.tap.preserve import turn_of

CRITERIA = [nc.NLC(rule="all"), nc.KMNC(10), nc.TKNP(1)]


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.fc = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


def chosen_class(output):
    return output.argmax(1)


def taken_apart(item):
    return item["x"], None


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Steps()


def inputs(seed, size=8, steps=6):
    return torch.randn(size, steps, 4, generator=torch.Generator().manual_seed(seed))


OPTIONS = {
    "layers": "rnn|fc",
    "predict": chosen_class,
    "batch_axis": 0,
    "device": "cpu",
    "mode": "keep",
    "unpack": taken_apart,
    "steps": 7,
    "cuda_graph": True,
}


def covered(net, **options):
    coverage = nc.Coverage(net, CRITERIA, **options)
    coverage.calibrate([inputs(0, 30)])
    coverage.update(inputs(1))
    return coverage


def copies(coverage):
    other = nc.Coverage(coverage.model, CRITERIA, steps=7)
    other.calibrate([inputs(0, 30)])
    return {
        "fork": coverage.fork(),
        "copy": copy.copy(coverage),
        "+ 0": coverage + 0,
        "+ other": coverage + other,
        "sum": sum([coverage, other]),
    }


def options_of(coverage):
    """Everything a coverage and its tap were set to, wherever it is kept; not what changes while measuring."""
    changing = {"_ledger", "_recorder", "_tap", "_warned", "_identities", "_depth", "_pass", "_handles", "_within"}
    changing |= {"_probe", "_experts", "_reader", "_provenance", "_steps", "_layers"}
    kept = {**vars(coverage), **{f"tap.{name}": value for name, value in vars(coverage._tap).items()}}
    return {name: value for name, value in kept.items() if name.removeprefix("tap.") not in changing}


def test_copies_keep_every_option(net):
    coverage = nc.Coverage(net, CRITERIA, **OPTIONS)
    coverage.calibrate([{"x": inputs(0, 30)}])
    coverage.update(inputs(1))
    for how, twin in copies(coverage).items():
        assert options_of(twin) == options_of(coverage), how
        assert twin._tap._steps.most == 7, how
        assert twin._found_rows() == coverage._found_rows(), how
        assert twin.provenance() == coverage.provenance(), how
        assert isinstance(twin._recorder, Recorder), how
        assert twin._recorder._ledger is twin._ledger, how
        assert twin._recorder._tap is twin._tap, how
        assert twin.values() == coverage.values(), how
        twin.assess([{"x": inputs(2)}])
        assert twin.inputs == 16, how
        assert coverage.inputs == 8


def test_a_copy_without_cuda_graph_has_none(net):
    assert all(twin._recorder is None for twin in copies(covered(net, steps=7)).values())


def test_copies_are_independent(net):
    coverage = covered(net, steps=7)
    before = coverage.values()
    alone = covered(net, steps=7)
    alone.update(inputs(2))
    for how, twin in copies(coverage).items():
        twin.update(inputs(2))
        assert twin.values() == alone.values(), how
        assert coverage.values() == before, how
    fork = coverage.fork()
    coverage.update(inputs(2))
    assert coverage.values() == alone.values()
    assert fork.values() == before
    fork.reset()
    assert coverage.values() == alone.values()


def test_a_fork_keeps_time_steps_and_calibration(net, tmp_path):
    coverage = nc.Coverage(net, CRITERIA)
    coverage.calibrate([inputs(0, 30, steps=6)])
    fork = coverage.fork()
    assert fork.calibration_ids() == coverage.calibration_ids()
    fork.update(inputs(1, steps=5))
    assert len(fork.layout) == 7
    with pytest.raises(nc.NeuralcovError, match="ran 8 steps, more than the 6"):
        fork.update(inputs(1, steps=8))
    fork.save_calibration(tmp_path / "train.ncal")


def test_a_fork_within_a_block_goes_on_after_it(net):
    coverage = covered(net)
    with coverage.tap():
        fork = coverage.fork()
        fork.update(inputs(2))
    assert not any(module._forward_hooks for module in net.modules())
    fork.update(inputs(3))
    assert fork.inputs == 24


def test_a_fork_of_bare_layers():
    coverage = nc.Coverage.of_layers({"a": 3}, [nc.NC(0.5)])
    coverage.update(activations={"a": torch.eye(3)})
    fork = coverage.fork()
    fork.update(activations={"a": torch.ones(2, 3)})
    assert (coverage.inputs, fork.inputs) == (3, 5)
    assert fork.model is None


def test_a_deep_copy_has_a_model_of_its_own(net):
    coverage = covered(net)
    twin = copy.deepcopy(coverage)
    assert twin.model is not net
    assert twin._tap._turn is turn_of(twin.model) is not turn_of(net)
    twin.update(inputs(2))
    assert (coverage.inputs, twin.inputs) == (8, 16)

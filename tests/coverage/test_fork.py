"""Copies of a coverage: the same model, options, calibration and state, and nothing shared that changes."""

import copy

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.collection import CriterionCollection
from neuralcov.coverage.cuda_graph import GraphedUpdates
from neuralcov.coverage.measurement import Measurement
from neuralcov.tap import Tap
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


def parts_of(owner):
    """Everything a coverage keeps, by name, in whichever of its parts it is kept."""
    for name, value in vars(owner).items():
        if isinstance(value, (Measurement, BatchReader, Tap)):
            yield from parts_of(value)
        yield name.lstrip("_"), value


def part(coverage, kind):
    (found,) = {id(value): value for _, value in parts_of(coverage) if isinstance(value, kind)}.values()
    return found


def options_of(coverage):
    """Everything a coverage and its tap were set to; not what changes while measuring."""
    changing = {"measurement", "reader", "tap", "collection", "graphs", "provenance", "warned", "depth"}
    changing |= {"assessed", "halving", "listening"}
    changing |= {"pass", "handles", "within", "probe", "experts", "steps", "layers"}
    return {name: value for name, value in parts_of(coverage) if name not in changing}


def test_copies_keep_every_option(net):
    coverage = nc.Coverage(net, CRITERIA, **OPTIONS)
    coverage.calibrate([{"x": inputs(0, 30)}])
    coverage.update(inputs(1))
    assert options_of(coverage)["unpack"] is taken_apart
    for how, twin in copies(coverage).items():
        assert options_of(twin) == options_of(coverage), how
        assert dict(parts_of(twin))["steps"].most == 7, how
        assert part(twin, Measurement).rows == part(coverage, Measurement).rows, how
        assert twin.provenance() == coverage.provenance(), how
        graphs = part(twin, GraphedUpdates)
        assert graphs.collection is part(twin, CriterionCollection), how
        assert graphs.tap is part(twin, Tap), how
        assert twin.values() == coverage.values(), how
        twin.assess([{"x": inputs(2)}])
        assert twin.inputs == 16, how
        assert coverage.inputs == 8


def test_a_copy_without_cuda_graph_has_none(net):
    for how, twin in copies(covered(net, steps=7, cuda_graph=False)).items():
        assert not any(isinstance(value, GraphedUpdates) for _, value in parts_of(twin)), how


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
    assert dict(parts_of(twin))["turn"] is turn_of(twin.model) is not turn_of(net)
    twin.update(inputs(2))
    assert (coverage.inputs, twin.inputs) == (8, 16)


def test_a_fork_of_one_that_listens_does_not(net):
    cov, x = nc.Coverage(net.eval(), [nc.NC(0.5)]), torch.randn(6, 4, 4)
    with cov.listen():
        twin = cov.fork()
        net(x)
        cov.labels(torch.zeros(6).long())
        with twin.listen():
            net(x[:2])
            twin.labels(torch.zeros(2).long())
            with pytest.raises(ValueError, match="labels are given twice"):
                twin.labels(torch.zeros(2).long())
            cov.labels(torch.zeros(2).long())
    assert (cov.inputs, twin.inputs) == (8, 2)

"""Small batches on a CPU wait for others: nobody can tell, but by the time it takes."""

import itertools
import json
import time
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from torch import nn

import neuralcov as nc
from neuralcov.core.criterion import Criterion, State
from neuralcov.core.records import flatten
from neuralcov.coverage.waiting import WaitingBatches
from neuralcov_lab.networks import SentimentLSTM

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
CRITERIA = [
    nc.NC(0.4),
    nc.NC(0.5, errors=True),
    nc.KMNC(5),
    nc.SNAC(),
    nc.TKNC(1),
    nc.NLC(),
    nc.NLC(rule="all"),
    nc.LCC(),
]
CRITERIA += [
    nc.TKNP(1),
    nc.CC(1),
    nc.LSC(1),
    nc.DSC(0.1),
    nc.MDSC(1),
    nc.LCC(sketch=16),
    nc.LSC(1, by="label"),
    nc.SS(),
]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)).eval()


def data(count=40, size=5):
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randn(size, 4, generator=generator) for _ in range(count)]
    batches[min(7, count - 1)][2] = float("nan")
    return [(x, torch.randint(3, (len(x),), generator=generator)) for x in batches]


def made(calibrated_by=None, criteria=CRITERIA, **options):
    coverage = nc.Coverage(network(), criteria, **options)
    return coverage.calibrate(calibrated_by or data(60), progress=False) or coverage


def parts(states):
    tensors = {}
    told = [flatten(state, str(place), tensors) for place, state in enumerate(states)]
    return told, tensors


def same(one, other):
    (told, tensors), (others, more) = parts(one.states), parts(other.states)
    assert told == others
    assert tensors.keys() == more.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, more[name]), name
    assert one.values() == other.values()
    assert one.inputs == other.inputs
    assert one.has_runs_of(other)
    assert one.findings() == other.findings()
    assert one.sanity() == other.sanity()


@pytest.fixture
def one_by_one(monkeypatch):
    """Return what a function gives where no batch waits."""

    def run(function):
        with monkeypatch.context() as patch:
            patch.setattr(WaitingBatches, "may_take", lambda self, batch: False)
            return function()

    return run


@pytest.mark.parametrize("sizes", [[5] * 40, [1] * 30, [400, 3, 700, 2, 2, 5000, 1]], ids=["small", "single", "uneven"])
def test_states_are_those_of_batches_one_by_one(one_by_one, sizes):
    generator = torch.Generator().manual_seed(2)
    batches = [(torch.randn(n, 4, generator=generator), torch.randint(3, (n,), generator=generator)) for n in sizes]
    batches[3][0][0] = float("inf")

    def observed():
        coverage = made()
        with coverage.tap():
            for inputs, labels in batches:
                coverage.update(inputs, labels)
        return coverage

    same(observed(), one_by_one(observed))


def test_assess_with_names_slices_and_tables(one_by_one):
    def observed():
        coverage = made()
        named = [
            nc.Batch(
                x, y, ids=tuple(f"{place}-{row}" for row in range(len(x))), metadata={"odd": (place % 2,) * len(x)}
            )
            for place, (x, y) in enumerate(data())
        ]
        coverage.assess(named, slices=["odd"], progress=False)
        return coverage

    waited, plain = observed(), one_by_one(observed)
    same(waited, plain)
    assert ("7-2",) in [finding.ids for finding in waited.findings()]
    assert waited.by_slice() == plain.by_slice()
    assert waited.results().neurons == plain.results().neurons


def test_padded_steps_wait_with_their_masks(one_by_one):
    generator = torch.Generator().manual_seed(3)
    texts = [torch.randint(1, 30, (6, 9), generator=generator) for _ in range(20)]
    lengths = [torch.randint(1, 10, (6,), generator=generator) for _ in texts]

    def observed():
        torch.manual_seed(0)
        model = SentimentLSTM(vocabulary=30, embedding=4, hidden=5, steps=9).eval()
        coverage = nc.Coverage(model, [nc.NC(0.4), nc.TKNP(1), nc.LCC(), nc.NLC()])
        coverage.calibrate(texts, lengths=lambda batch: (batch != 0).sum(1), progress=False)
        with coverage.tap():
            for text, length in zip(texts, lengths, strict=True):
                coverage.update(text, lengths=length)
        return coverage

    same(observed(), one_by_one(observed))


class Outside(Criterion):
    """Has not said that it may wait."""

    promises = frozenset()

    def init(self, layout):
        return State.of(layout)

    def observe(self, state, batch, *, donate=False):
        SIZES.append(batch.size)
        return replace(state, counts=state.counts + batch.input_counts)

    def merge(self, a, b):
        return replace(a, counts=a.counts + b.counts)

    def value(self, state):
        return state.counts[0].double()


SIZES = []


def test_criteria_that_have_not_said_so_observe_at_once():
    SIZES.clear()
    coverage = nc.Coverage(network(), [Outside(), nc.NC(0.4)])
    with coverage.tap():
        for place, (inputs, _) in enumerate(data(8)):
            coverage.update(inputs)
            assert [5] * (place + 1) == SIZES
    assert coverage.values()["Outside"] == 39


def counted(monkeypatch):
    """Count how often NC looks at a batch."""
    calls, plain = [], nc.NC.hits
    monkeypatch.setattr(nc.NC, "hits", lambda self, stack: calls.append(len(stack.values)) or plain(self, stack))
    return calls


def test_hundreds_of_inputs_are_looked_at_together(monkeypatch):
    coverage, calls = nc.Coverage(network(), [nc.NC(0.4)]), counted(monkeypatch)
    with coverage.tap():
        for inputs, _ in data(300):
            coverage.update(inputs)
    # The first alone, then 205 batches, the rest when somebody looks.
    assert calls == [5, 5, 1025, 1025]
    coverage.values()
    assert calls == [5, 5, 1025, 1025, 470, 470]
    assert coverage.inputs == 1500


def test_large_batches_and_given_activations_do_not_wait(monkeypatch):
    calls = counted(monkeypatch)
    coverage = nc.Coverage(network(), [nc.NC(0.4)])
    with coverage.tap():
        for _ in range(3):
            coverage.update(torch.randn(6000, 4))
    assert calls == [6000] * 6
    calls.clear()
    outputs = torch.randn(5, 2)
    bare = nc.Coverage.of_layers({"a": 2}, [nc.NC(0.4)])
    for _ in range(3):
        bare.update(activations={"a": outputs})
        outputs.zero_()
    assert calls == [5, 5, 5]


def test_what_the_user_overwrites_afterwards_does_not_count(one_by_one):
    def observed():
        coverage, inputs, labels = made(), torch.empty(5, 4), torch.empty(5, dtype=torch.long)
        with coverage.tap():
            for x, y in data():
                coverage.update(inputs.copy_(x), labels.copy_(y))
        inputs.zero_(), labels.zero_()
        return coverage

    same(observed(), one_by_one(observed))


def test_snapshots_gains_proposals_and_resets_on_the_way(one_by_one):
    batches = data()

    def observed():
        coverage, found = made(), []
        with coverage.tap():
            for place, (x, y) in enumerate(batches):
                coverage.update(x, y)
                if place == 5:
                    kept = coverage.snapshot()
                if place == 9:
                    found.append({name: gain.tolist() for name, gain in coverage.gain(x + 1, y).items()})
                if place == 12:
                    coverage.propose(x + 2, y).commit(keep=torch.tensor([0, 3]))
                if place == 15:
                    twin = coverage.fork()
                if place == 20:
                    found.append(coverage.values())
                    coverage.restore(kept)
                if place == 30:
                    found.append(coverage.inputs)
                    coverage.reset()
        coverage.merge(twin, overlap="allow")
        return coverage, found

    (waited, found), (plain, expected) = observed(), one_by_one(observed)
    assert str(found) == str(expected)
    same(waited, plain)


def test_a_proposal_is_older_than_a_batch_that_waits():
    coverage, batches = made(criteria=[nc.NC(0.4)]), data()
    with coverage.tap():
        coverage.update(batches[0][0])
        coverage.update(batches[1][0])
        proposal = coverage.propose(batches[2][0])
        coverage.update(batches[3][0])
        with pytest.raises(nc.NeuralcovError, match="propose again"):
            proposal.commit()


def test_a_file_holds_all_and_tells_when(tmp_path, monkeypatch):
    coverage, now = made(criteria=[nc.NC(0.4)]), itertools.count(1000.0, 10.0)
    monkeypatch.setattr(time, "time", lambda: next(now))
    with coverage.tap():
        for x, _ in data(6):
            coverage.update(x)
    monkeypatch.setattr(time, "time", lambda: 9999.0)
    coverage.save(tmp_path / "suite.ncov")
    with safe_open(tmp_path / "suite.ncov", "pt") as file:
        (run,) = json.loads(file.metadata()["header"])["inputs"]["runs"]
    assert (run["inputs"], run["from"], run["to"]) == (30, "1970-01-01T00:16:40Z", "1970-01-01T00:17:30Z")


def test_what_speaks_against_a_batch_is_said_at_once():
    class Answers(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.shape = "classes"

        def forward(self, x):
            out = self.fc(x)
            return out if self.shape == "classes" else {"hidden": out[:, None, :, None]}

    model = Answers().eval()
    coverage = nc.Coverage(model, [nc.LCC()])
    coverage.calibrate([x for x, _ in data()], progress=False)
    with coverage.tap():
        for x, _ in data(5):
            coverage.update(x.nan_to_num())
        model.shape = "others"
        with pytest.raises(nc.NeuralcovError, match="calibrated with predicted classes"):
            coverage.update(torch.randn(5, 4))

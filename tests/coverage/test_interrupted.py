"""Work that is interrupted anywhere leaves the state before it, the state after it, or one that says what happened."""

import sys
from random import Random

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import NeuralcovError
from neuralcov.tap import preserve

CRITERIA = [nc.NLC(), nc.NLC(rule="all"), nc.NC(0.5), nc.TKNP(2), nc.CC(), nc.SS()]


class Stop(BaseException):
    """Stand for Ctrl-C, which may come at any instruction."""


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))


@pytest.fixture(autouse=True)
def process_as_found():
    """Put back what an interruption within the very exit of a block leaves: ``no_grad``, fast paths, modes to keep."""
    yield
    torch.set_grad_enabled(True)
    preserve._process.close()
    preserve._open.clear()


class Interrupting:
    """Raise at a line of this package's code, the so-manyth that is run; count the lines."""

    def __init__(self, at=None):
        self.at, self.lines = at, 0

    def __call__(self, frame, event, argument):
        if "neuralcov" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise Stop
        return self

    def __enter__(self):
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(None)


@pytest.mark.parametrize("what", ["commit", "update", "update and look", "admit"])
def test_an_interruption_never_leaves_a_wrong_value(model, what):
    random = torch.Generator().manual_seed(0)
    more = torch.randn(6, 6, generator=random)
    start = nc.Coverage(model, CRITERIA)
    start.update(torch.randn(12, 6, generator=random))

    def begun():
        coverage = start.fork()
        coverage.update(torch.zeros(1, 6))  # states that this coverage alone owns, and may overwrite
        return coverage, coverage.propose(more)

    def work(coverage, proposal):
        if what == "commit":
            proposal.commit()
        elif what == "admit":
            coverage.admit(more)
        else:
            coverage.update(more)
        if what == "update and look":
            coverage.values()  # until then the batch waits

    before, _ = begun()
    done, proposal = begun()
    with Interrupting() as counted:
        work(done, proposal)
    allowed, dice, refused = (before.values(), done.values()), Random(0), 0
    places = sorted(dice.sample(range(1, counted.lines + 1), 70))
    for place in places:
        coverage, proposal = begun()
        with pytest.raises(Stop), Interrupting(place):
            work(coverage, proposal)
        try:
            values = coverage.values()
        except NeuralcovError as error:
            refused += 1
            said = str(error)
        else:
            assert values in allowed, f"line {place} of {counted.lines}"
            continue
        assert "an update was interrupted" in said
    # A batch that only waits has overwritten nothing.
    assert bool(refused) is (what != "update")
    # Whoever listens hears the passes of others only, and takes none that broke off for one that goes on.
    with nc.watch(model, [nc.NC(0.5)]) as heard:
        model(more)
    assert heard.inputs == 6


def test_a_commit_that_fails_half_way_says_so(model):
    """The second criterion throws when it has overwritten its state for some inputs."""
    coverage = nc.Coverage(model, [nc.NC(0.5), nc.NLC()])
    coverage.update(torch.randn(12, 6))
    coverage.update(torch.randn(12, 6))
    proposal = coverage.propose(torch.randn(8, 6))
    observe, calls = nc.NLC.observe, []

    def failing(self, state, batch, *, donate=False):
        calls.append(batch.size)
        if len(calls) == 4:
            raise RuntimeError("the device gave out")
        return observe(self, state, batch, donate=donate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nc.NLC, "observe", failing)
        with pytest.raises(RuntimeError, match="gave out"):
            proposal.commit()
    assert len(calls) == 4
    with pytest.raises(nc.NeuralcovError, match="an update was interrupted while it overwrote the state"):
        coverage.values()
    coverage.reset()
    assert coverage.values() == {"NC(0.5)": 0.0, "NLC": 0.0}

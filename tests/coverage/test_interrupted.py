"""Work that is interrupted anywhere leaves the state before it, the state after it, or one that says what happened."""

import ctypes
import random
import threading
import time

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import NeuralcovError

CRITERIA = [nc.NLC(), nc.NLC(rule="all"), nc.NC(0.5), nc.TKNP(2), nc.CC(), nc.SS()]


class Stop(BaseException):
    """Stand for Ctrl-C, which may come at any instruction."""


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))


def _interrupt(thread, after):
    time.sleep(after)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Stop))


@pytest.mark.parametrize("what", ["commit", "update", "admit"])
def test_an_interruption_never_leaves_a_wrong_value(model, what):
    first, more = torch.randn(12, 6), torch.randn(8, 6)
    start = nc.Coverage(model, CRITERIA)
    start.update(first)
    before = start.values()

    def work(coverage, proposal):
        if what == "commit":
            proposal.commit()
        else:
            getattr(coverage, what)(more)

    done = start.fork()
    began = time.perf_counter()
    work(done, done.propose(more))
    took, after = time.perf_counter() - began, done.values()
    dice, hit, refused = random.Random(0), 0, 0
    for _ in range(120):
        coverage = start.fork()
        proposal = coverage.propose(more)
        thread = threading.Thread(target=_interrupt, args=(threading.get_ident(), dice.random() * took * 1.2))
        thread.start()
        try:
            work(coverage, proposal)
            thread.join()
            time.sleep(0)
        except Stop:
            hit += 1
        finally:
            try:
                thread.join()
                time.sleep(1e-4)
            except Stop:
                pass
        try:
            values = coverage.values()
        except NeuralcovError as error:
            assert "an update was interrupted" in str(error)
            refused += 1
            continue
        assert values in (before, after)
        assert coverage.inputs in (start.inputs, done.inputs)
    assert hit > 10


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

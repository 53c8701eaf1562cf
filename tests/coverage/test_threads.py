"""Several threads measure one model, with coverages of their own or one for all: values are those of taking turns."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn

import neuralcov as nc

THREADS, ROUNDS = 4, 12
CRITERIA = [nc.NLC(rule="all"), nc.NC(0.5), nc.KMNC(20), nc.TKNP(2), nc.LVC()]


@pytest.fixture(autouse=True)
def busy():
    """Change threads a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


class Net(nn.Module):
    """Normalises and drops, so that a wrong mode shows; its first batch norm counts batches, so that buffers do."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x))


@pytest.fixture
def net():
    return Net().train()


def inputs(seed, size=16):
    return torch.randn(size, 6, generator=torch.Generator().manual_seed(seed))


def coverage_of(net, criteria=CRITERIA):
    coverage = nc.Coverage(net, criteria)
    coverage.calibrate([inputs(99, 100)])
    return coverage


def at_once(*jobs):
    """Run jobs in threads that start together; give what they return, or raise what one of them raises."""
    gate = threading.Barrier(len(jobs))

    def begin(job):
        gate.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result(timeout=120) for future in [pool.submit(begin, job) for job in jobs]]


def state_of(net):
    return {name: value.clone() for name, value in net.state_dict().items()}


def is_as_before(net, before):
    same = all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    return same and all(m.training for m in net.modules()) and not any(m._forward_hooks for m in net.modules())


def test_each_thread_has_its_coverage(net):
    before = state_of(net)

    def measure(thread):
        coverage = coverage_of(net)
        for turn in range(ROUNDS):
            coverage.update(inputs(100 * thread + turn))
            coverage.gain(inputs(turn))
        return coverage.values()

    expected = [measure(thread) for thread in range(THREADS)]
    for _ in range(3):
        found = at_once(*[partial(measure, thread) for thread in range(THREADS)])
        assert found == expected
        assert is_as_before(net, before)


def test_blocks_overlap(net):
    before = state_of(net)

    def measure(thread):
        coverage = coverage_of(net)
        coverage.assess([inputs(100 * thread + turn) for turn in range(ROUNDS)])
        return coverage.values()

    expected = [measure(thread) for thread in range(THREADS)]
    for _ in range(3):
        assert at_once(*[partial(measure, thread) for thread in range(THREADS)]) == expected
        assert is_as_before(net, before)


@pytest.mark.parametrize("within", [False, True])
def test_one_coverage_for_all_threads(net, within):
    before = state_of(net)
    criteria = [nc.NC(0.5), nc.KMNC(20), nc.TKNP(2), nc.NBC(), nc.SS(), nc.LSC(1)]  # free of order
    serial = coverage_of(net, criteria)
    for seed in range(THREADS * ROUNDS):
        serial.update(inputs(seed))
    for _ in range(3):
        shared = coverage_of(net, criteria)

        def measure(thread, shared=shared):
            for turn in range(ROUNDS):
                shared.update(inputs(ROUNDS * thread + turn))

        if within:
            with shared.tap():
                at_once(*[partial(measure, thread) for thread in range(THREADS)])
        else:
            at_once(*[partial(measure, thread) for thread in range(THREADS)])
        assert shared.inputs == serial.inputs
        assert shared.values() == serial.values()
        assert is_as_before(net, before)


def test_passes_of_others_are_not_recorded(net):
    # A thread that serves with the model meanwhile. In eval mode, which both want.
    net.eval()
    coverage = coverage_of(net)
    for turn in range(ROUNDS):
        coverage.update(inputs(turn))
    expected, done = coverage.values(), threading.Event()
    coverage.reset()

    def serve():
        while not done.is_set():
            net(inputs(7, size=16) * 50)

    def measure():
        try:
            for turn in range(ROUNDS):
                coverage.update(inputs(turn))
        finally:
            done.set()

    at_once(serve, measure)
    assert coverage.values() == expected


def test_a_model_and_a_part_of_it(net):
    net.eval()

    def whole():
        coverage = nc.Coverage(net, [nc.NLC(rule="all")])
        for turn in range(ROUNDS):
            coverage.update(inputs(turn))
        return coverage.values()

    def part():
        coverage = nc.Coverage(net.body, [nc.NLC(rule="all")])
        for turn in range(ROUNDS):
            coverage.update(inputs(50 + turn))
        return coverage.values()

    expected = [whole(), part()]
    for _ in range(5):
        assert at_once(whole, part) == expected


def test_encoders_of_two_threads_run_as_modules():
    # What turns PyTorch's fused encoder off holds for the whole process: the last one out turns it on again.
    def encoder():
        torch.manual_seed(0)
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()

    def measure(model):
        coverage = nc.Coverage(model, [nc.NC(0.5)])
        for turn in range(ROUNDS):
            coverage.update(torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(turn)))
        return coverage.values()

    enabled = torch.backends.mha.get_fastpath_enabled()
    expected = measure(encoder())
    for _ in range(6):
        jobs = [partial(measure, encoder()) for _ in range(2)]
        assert at_once(*jobs) == [expected, expected]
        assert torch.backends.mha.get_fastpath_enabled() == enabled


def test_merging_both_ways_at_once(net):
    pair = [nc.Coverage(net, [nc.NC(0.5)], keys="none") for _ in range(2)]
    for coverage in pair:
        coverage.update(inputs(0))

    def merge(mine, other):
        for _ in range(50):
            mine.merge(other)
            mine.restore(mine.snapshot())
            mine.reset()
            mine.update(inputs(0))

    at_once(partial(merge, *pair), partial(merge, *reversed(pair)))
    assert pair[0].values() == pair[1].values()


def test_another_mode_in_another_thread_is_refused(net):
    inside, leave = threading.Event(), threading.Event()
    evaluated, kept = nc.Coverage(net, [nc.NC(0.5)]), nc.Coverage(net, [nc.NC(0.5)], mode="keep")

    def hold():
        with evaluated.tap():
            inside.set()
            leave.wait(60)

    def intrude():
        inside.wait(60)
        try:
            with pytest.raises(nc.NeuralcovError, match=r"mode='keep' .* another thread .* mode='eval'.* copy"):
                kept.update(inputs(0))
        finally:
            leave.set()

    at_once(hold, intrude)
    kept.update(inputs(0))
    assert kept.inputs == 16


def test_a_block_that_nests_another_mode_is_not_shared(net):
    evaluated, kept = nc.Coverage(net, [nc.NC(0.5)]), nc.Coverage(net, [nc.NC(0.5)], mode="keep")
    with kept.tap(), evaluated.tap(), ThreadPoolExecutor(1) as pool:
        refused = pool.submit(kept.update, inputs(0))
    with pytest.raises(nc.NeuralcovError, match=r"mode='keep' .* another thread .* mode='eval'.* copy"):
        refused.result()
    with kept.tap(), ThreadPoolExecutor(1) as pool:
        pool.submit(kept.update, inputs(0)).result(timeout=60)
        with pytest.raises(nc.NeuralcovError, match=r"mode='eval' .* another thread .* mode='keep'.* copy"):
            evaluated.update(inputs(0))
    assert kept.inputs == 16


def test_modes_nest_in_one_thread(net):
    evaluated, kept = nc.Coverage(net, [nc.NC(0.5)]), nc.Coverage(net, [nc.NC(0.5)], mode="keep")
    seen = []
    for coverage in (evaluated, kept):
        coverage.probe(inputs(0))
    net.register_forward_hook(lambda module, *_: seen.append(module.training))
    with kept.tap():
        kept.update(inputs(0))
        evaluated.update(inputs(0))
        kept.update(inputs(0))
    assert seen == [True, False, True]
    assert net.training

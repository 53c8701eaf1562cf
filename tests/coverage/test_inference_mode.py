"""Updates within ``torch.inference_mode`` mix with updates outside: states are ordinary tensors either way."""

import itertools
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.records import flatten
from tests.criteria.test_laws import CRITERIA


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)).eval()


def batches(seed, count, size=6):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 6, generator=generator) * (1 + i / 3) for i in range(count)]


def story(net, criterion, modes, folder):
    """Measure in many steps, each within inference mode or not; give the value after each, and the coverages."""
    turns = itertools.cycle(modes)
    values = []

    def step(action):
        with torch.inference_mode() if next(turns) else nullcontext():
            found = action()
        values.append(coverage.values(warn=False)[criterion.name])
        return found

    def labelled(batch):
        return batch.clone(), torch.arange(len(batch)) % 3

    first, second, third, fourth, fifth, sixth = batches(1, 6)
    coverage = nc.Coverage(net, [criterion])
    step(lambda: coverage.calibrate([labelled(batch) for batch in batches(0, 6, 12)]))
    step(lambda: coverage.update(*labelled(first)))
    step(lambda: coverage.update(*labelled(second)))
    snapshot = step(coverage.snapshot)
    step(lambda: coverage.update(*labelled(third)))
    values.append(step(lambda: coverage.gain(*labelled(fourth)))[criterion.name].tolist())
    values.append(step(lambda: coverage.admit(*labelled(fourth))).tolist())
    proposal = step(lambda: coverage.propose(*labelled(fifth)))
    step(lambda: proposal.commit([0, 2]))
    step(lambda: coverage.save(folder / "state.ncov"))
    fork = step(coverage.fork)
    step(fork.reset)
    step(lambda: fork.update(*labelled(batches(2, 1)[0])))
    step(lambda: coverage.update(*labelled(sixth)))
    step(lambda: coverage.merge(fork))
    step(lambda: coverage.update(*labelled(third)))
    step(lambda: coverage.restore(snapshot))
    step(lambda: coverage.update(*labelled(fifth)))
    step(lambda: coverage.save_calibration(folder / "train.ncal"))
    loaded = step(lambda: nc.Coverage.load(folder / "state.ncov", net, calibration=folder / "train.ncal"))
    step(lambda: loaded.update(*labelled(sixth)))
    step(lambda: loaded.update(*labelled(first)))
    values.append(loaded.values(warn=False)[criterion.name])
    return values, (coverage, fork, loaded)


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
def test_steps_within_and_without_mix(net, criterion, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        expected, _ = story(net, criterion, [False], tmp_path)
        for modes in ([True], [True, False], [False, True], [True, True, False], [False, False, True]):
            values, coverages = story(net, criterion, modes, tmp_path)
            assert values == expected, modes
            for coverage in coverages:
                tensors = {}
                flatten((*coverage.states, *(c.for_state_file() for c in coverage.criteria)), "", tensors)
                assert not [path for path, tensor in tensors.items() if tensor.is_inference()]


def test_the_forward_pass_stays_in_inference_mode(net):
    # An in-place function may overwrite an input of inference mode only there.
    seen = []
    inplace = nn.Sequential(nn.ReLU(inplace=True), net)
    inplace.register_forward_hook(lambda *_: seen.append(torch.is_inference_mode_enabled()))
    coverage = nc.Coverage(inplace, [nc.NLC()])
    with torch.inference_mode():
        coverage.update(batches(0, 1)[0].clone())
        assert torch.is_inference_mode_enabled()
    # The batch, and two runs of the probe before it.
    assert seen == [True] * 3


def test_activations_of_inference_mode_given_outside():
    first, second = batches(0, 2)
    with torch.inference_mode():
        made = [{"a": batch * 1} for batch in (first, second)]
        labels = torch.arange(6) % 3
    mixed, plain = (nc.Coverage.of_layers({"a": 6}, [nc.NLC(rule="all"), nc.CC(1), nc.NLC(classes=3)]) for _ in "ab")
    for given, batch in zip(made, (first, second), strict=True):
        mixed.update(activations=given, labels=labels)
        plain.update(activations={"a": batch}, labels=labels.clone())
    assert mixed.values() == plain.values()

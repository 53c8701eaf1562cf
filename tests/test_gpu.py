"""What must be shown on a GPU: the same numbers as on a CPU, and no stalls."""

import warnings

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.digests import content_keys
from neuralcov.tap import Batch, Tap
from neuralcov.testing import check_devices
from neuralcov.testing.cases import calibrated, moved, of_unknown_classes, random_batch, with_not_finite
from tests.criteria.test_laws import CRITERIA
from tests.gpu_support import FIXED, small_network
from tests.tap.relevance_support import Residual, explain, images, seeded
from tests.tap.test_rows import FOLDS, Folds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


GROWING = [nc.TKNP(2), nc.LCC(), nc.CC(1), nc.SS(), nc.NLC(classes=3), nc.LSC(1), nc.DSC(0.1), nc.MDSC(1)]


GROWING += [nc.NPC(mode="activation")]


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
def test_devices_agree(criterion):
    check_devices(criterion, "cuda", examples=6)


def prepared(criterion):
    generator = torch.Generator().manual_seed(0)
    training, suite, more = (random_batch(generator, [70, 5, 70], size, "smooth") for size in (200, 50, 20))
    fitted = calibrated(criterion, moved(training, "cuda"))
    batches = [moved(batch, "cuda") for batch in (suite, more)]
    state = fitted.observe(fitted.init(batches[0].layout), batches[0])
    # Once before: kernels compile, tables of constants are made.
    fitted.gain(state, moved(more, "cuda"))
    fitted.value(fitted.observe(state, moved(more, "cuda")))
    torch.cuda.synchronize()
    return fitted, state, batches[1]


@pytest.mark.parametrize("criterion", FIXED, ids=lambda criterion: criterion.name)
def test_states_of_fixed_size_never_wait_for_the_device(criterion):
    fitted, state, batch = prepared(criterion)
    torch.cuda.set_sync_debug_mode("error")
    try:
        after = fitted.observe(state, batch)
        after = fitted.observe(after, batch, donate=True)
        fitted.gain(after, batch)
        fitted.value(after)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def waits(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            action()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("criterion", GROWING, ids=lambda criterion: criterion.name)
def test_growing_states_seldom_wait_for_the_device(criterion):
    fitted, state, batch = prepared(criterion)
    fresh = [nc.Activations(batch.layers, batch.labels, batch.predictions, batch.relevance) for _ in range(2)]
    found = {
        "observe": waits(lambda: fitted.observe(state, fresh[0])),
        "gain": waits(lambda: fitted.gain(state, fresh[1])),
        "value": waits(lambda: fitted.value(state)),
    }
    print(f"{criterion.name} waits: {found}")
    assert found["value"] == 0
    assert found["observe"] <= EXPECTED[type(criterion).__name__]["observe"], found
    assert found["gain"] <= EXPECTED[type(criterion).__name__]["gain"], found


EXPECTED = {
    "TKNP": {"observe": 1, "gain": 0},
    "LCC": {"observe": 1, "gain": 0},
    "CC": {"observe": 1, "gain": 1},
    "SS": {"observe": 1, "gain": 1},
    "NLC": {"observe": 1, "gain": 1},
    # For the classes; DSC also for the proof of what is nearest, LSC for that of its sums.
    "LSC": {"observe": 2, "gain": 2},
    "DSC": {"observe": 2, "gain": 2},
    "MDSC": {"observe": 1, "gain": 1},
    "NPC": {"observe": 1, "gain": 1},
}


def test_signs_are_admitted_as_on_a_cpu():
    """Rows that differ in a few signs, so that groups and neighbours abound; repeated ones gain nothing."""
    generator = torch.Generator().manual_seed(3)
    layers = {}
    for name, width in {"a": 9, "b": 130, "c": 6}.items():
        flips = (torch.rand(700, width, generator=generator) < 1.5 / width).float() * -2 + 1
        layers[name] = torch.randn(width, generator=generator) * flips
    criterion, there = nc.SS(), nc.Activations(layers, present={"b": torch.arange(700) % 7 > 0})
    found = {}
    for device in ("cpu", "cuda"):
        batch = moved(there, device)
        state = criterion.observe(criterion.init(batch.layout), batch.take(slice(0, 100)))
        taken, state = criterion.admit(state, batch.take(slice(100, 700)))
        found[device] = taken.tolist(), float(criterion.value(state)), state.counts.tolist()
    assert found["cpu"] == found["cuda"]
    assert 50 < sum(found["cpu"][0]) < 550


def test_relevance_agrees():
    """In float64, where no tensor core rounds."""
    net, inputs = seeded(Residual), images(20)
    expected, _ = explain(net, inputs)
    found, _ = explain(net.cuda(), inputs)
    for layer, values in expected.items():
        assert found[layer].device.type == "cuda"
        torch.testing.assert_close(found[layer].cpu(), values, rtol=1e-7, atol=1e-9)


def test_relevance_of_large_layers_is_summed():
    """Where outputs are averaged by a kernel of our own, relevance is still summed over space."""
    net = nn.Sequential(nn.Conv2d(3, 64, 3, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).cuda()
    relevance, output = explain(net, torch.randn(64, 3, 64, 64))
    torch.testing.assert_close(relevance["0"].sum(1), output.max(1).values, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
@pytest.mark.parametrize("min_gain", [-0.5, 0.0, 0.05])
def test_inputs_are_admitted_and_excluded_as_on_a_cpu(criterion, min_gain):
    generator = torch.Generator().manual_seed(5)
    training, suite, more = (random_batch(generator, [70, 5, 70], size, "smooth") for size in (200, 20, 30))
    offered = nc.Activations.cat([more, with_not_finite(suite, every=3), of_unknown_classes(more.take(slice(0, 4)))])
    found = []
    for device in ("cpu", "cuda"):
        fitted = calibrated(criterion, moved(training, device))
        batch = moved(suite, device)
        state = fitted.observe(fitted.init(batch.layout), batch)
        admitted, after = fitted.admit(state, moved(offered, device), min_gain=min_gain)
        found.append((admitted.tolist(), after.counts.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("fold", FOLDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_found_on_a_gpu(fold, dtype):
    function, order = FOLDS[fold]
    model, inputs = Folds(function).to("cuda", dtype), torch.randn(12, 4, 5, device="cuda", dtype=dtype)
    tap = Tap(model)
    batch, _ = tap.run(Batch(inputs))
    assert tap.known_rows.orders["fc"].order == order
    for index, alone in enumerate(inputs.split(1)):
        expected = Tap(model).run(Batch(alone))[0].layers["fc"][0]
        torch.testing.assert_close(batch.layers["fc"][index], expected, rtol=2e-2, atol=2e-2)


def test_batches_are_read_without_waiting_for_the_device():
    """Content keys included; the probe before the first batch may wait."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).cuda()
    inputs = torch.randn(16, 3, 8, 8, device="cuda")
    tap = Tap(model)
    with tap.open():
        tap.run(Batch(inputs))
        assert waits(lambda: tap.run(Batch(inputs))) == 0
        batch, _ = tap.run(Batch(inputs))
    assert torch.equal(batch.keys.cpu(), content_keys([inputs.cpu()]))


def test_excluded_inputs_are_named_without_waiting_for_the_device():
    model = small_network()
    inputs = torch.randn(12, 8, 3, 12, 12, device="cuda")
    inputs[7, 2] = torch.nan
    inputs[9, 5] = torch.inf
    ids = [[f"{batch}-{row}" for row in range(8)] for batch in range(12)]
    for graph in (False, True):
        coverage = nc.Coverage(model, [nc.NC(0.4), nc.NLC(), nc.TKNP(3)], cuda_graph=graph)
        with pytest.warns(nc.CoverageWarning, match="2 inputs with NaN"):
            coverage.assess([nc.Batch(*each) for each in named(inputs, ids)], progress=False)
        assert [finding.ids for finding in coverage.findings()] == [("7-2", "9-5")] * 3
    fixed = nc.Coverage(model, [nc.NC(0.4), nc.NLC()])
    with fixed.tap():
        fixed.update(inputs[0])
        assert waits(lambda: fixed.update(nc.Batch(inputs[7], ids=ids[7], metadata={"weather": ids[7]}))) == 0
    assert fixed.findings()[0].ids == ("7-2",)


def named(inputs, ids):
    """The arguments of batches with ids."""
    return [(part, None, None, None, names) for part, names in zip(inputs, ids, strict=True)]


def test_slices_and_tables_are_those_of_a_cpu():
    model = small_network()
    inputs = torch.randn(5, 20, 3, 12, 12)
    weather = [["rain", "sun", "fog", "sun"] * 5] * 5
    found = []
    for device in ("cuda", "cpu"):
        coverage = nc.Coverage(model.to(device), [nc.NC(0.4), nc.TKNP(3), nc.NLC(rule="all")])
        loader = [nc.Batch(part, metadata={"weather": names}) for part, names in zip(inputs, weather, strict=True)]
        coverage.assess(loader, slices=["weather", "class"], per_input=True, progress=False)
        found.append(coverage)
    ours, theirs = found
    assert list(ours.per_input()) == list(theirs.per_input())
    for mine, other in zip(ours.by_slice(), theirs.by_slice(), strict=True):
        for row, expected in zip(mine.rows, other.rows, strict=True):
            assert (row.slice, row.inputs) == (expected.slice, expected.inputs)
            assert row.alone == pytest.approx(expected.alone, rel=1e-3)
            assert row.lost == pytest.approx(expected.lost, rel=1e-2, abs=1e-4)


def beside_extremes(groups):
    """Training data, a suite with inputs of all lengths and as many candidates, of two layers."""
    generator = torch.Generator().manual_seed(3)
    training, suite, candidates = (random_batch(generator, [70, 5], size, "smooth") for size in (300, 80, 40))
    lengths = torch.logspace(0, 7, 80)[:, None]
    far = {name: outputs * lengths for name, outputs in suite.layers.items()}
    more = {name: outputs * lengths[::2] for name, outputs in candidates.layers.items()}
    return nc.LVC(groups=groups), training, nc.Activations(far), nc.Activations(more)


@pytest.mark.parametrize("groups", [1, 3])
def test_lvc_agrees_beside_extreme_inputs(groups):
    criterion, training, suite, candidates = beside_extremes(groups)
    found = []
    for device in ("cpu", "cuda"):
        fitted = calibrated(criterion, moved(training, device))
        there = moved(suite, device)
        state = fitted.observe(fitted.init(there.layout), there)
        halves = [fitted.observe(fitted.init(there.layout), there.take(part)) for part in (slice(0, 31), slice(31, 80))]
        gains = fitted.gain(state, moved(candidates, device))
        admitted, after = fitted.admit(state, moved(candidates, device))
        values = torch.stack([fitted.value(each) for each in (state, fitted.merge(*halves), after)])
        found.append([values.cpu(), gains.cpu(), admitted.cpu().double()])
    for here, there in zip(*found, strict=True):
        assert torch.allclose(here, there, rtol=0, atol=1e-6)


def test_lvc_never_waits_beside_extreme_inputs():
    criterion, training, suite, candidates = beside_extremes(1)
    fitted = calibrated(criterion, moved(training, "cuda"))
    batches = [moved(batch, "cuda") for batch in (suite, candidates)]
    state = fitted.observe(fitted.init(batches[0].layout), batches[0])
    fitted.gain(state, moved(candidates, "cuda"))
    fitted.value(state)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        after = fitted.observe(state, batches[1])
        fitted.gain(after, batches[1])
        fitted.value(after)
    finally:
        torch.cuda.set_sync_debug_mode("default")

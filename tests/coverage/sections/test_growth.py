"""Growth against values measured anew at every size, and what reading it costs."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.coverage.collection import CriterionCollection
from neuralcov.coverage.sections import GrowthRecorder
from neuralcov.coverage.sections import growth as module

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 3))


def suite(count, seed=2):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def batches(inputs, size):
    return [inputs[start : start + size] for start in range(0, len(inputs), size)]


CRITERIA = [nc.NC(0.4), nc.KMNC(20), nc.NLC(), nc.LVC(), nc.TKNP(2), nc.LCC()]


def coverage(model, criteria=CRITERIA):
    found = nc.Coverage(model, criteria)
    found.calibrate([suite(200, seed=1)], progress=False)
    return found


def test_values_on_the_way_are_those_of_so_many_inputs(model):
    inputs, found = suite(80), coverage(model)
    found.assess(batches(inputs, 10), progress=False)
    curves = found.results().growth
    # Halves of eight batches, and all; the costly one at a quarter, at half and at the end.
    assert curves["NC(0.4)"].sizes == (10, 20, 40, 80)
    assert curves["LVC"].sizes == (20, 40, 80)
    for name in ("NC(0.4)", "KMNC(20)", "NLC", "LVC"):
        curve = curves[name]
        assert (curve.order, curve.errors) == ("as measured", None)
        assert 0 <= curve.cost < 1
        for size, value in zip(curve.sizes, curve.values, strict=True):
            part = coverage(model)
            part.assess(batches(inputs[:size], 10), progress=False)
            assert value == pytest.approx(part.values()[name], rel=1e-12)
    half = next(v for n, v in zip(curves["KMNC(20)"].sizes, curves["KMNC(20)"].values, strict=True) if n == 40)
    assert curves["KMNC(20)"].second_half == pytest.approx(1 - half / found.values()["KMNC(20)"], rel=1e-12)


def test_kinds_are_rarefied_and_foretold_by_the_state_alone(model, tmp_path):
    found = coverage(model)
    found.assess(batches(suite(80), 10), progress=False)
    curve = found.results().growth["TKNP(2)"]
    assert (curve.sizes, curve.order, curve.cost) == ((1, 2, 3, 5, 8, 10, 20, 30, 40, 60, 80), "rarefied", None)
    expected = {n: found.rarefied(n)["TKNP(2)"] for n in curve.sizes}
    assert curve.values == tuple(expected[n][0] for n in curve.sizes)
    assert curve.errors == tuple(expected[n][1] for n in curve.sizes)
    assert curve.forecast == ((160, found.forecast(160)["TKNP(2)"], None),)
    # The expected number of kinds among few inputs is a mean over draws: seen by drawing.
    kinds = [tuple(row) for row in _top_two(model, suite(80))]
    rng = np.random.default_rng(0)
    drawn = [len({kinds[i] for i in rng.choice(80, 10, replace=False)}) for _ in range(4000)]
    assert expected[10][0] == pytest.approx(np.mean(drawn), abs=0.05)


def _top_two(model, inputs):
    """The pattern of each input: the two highest neurons of either layer."""
    outputs = [model[0](inputs), model(inputs)]
    return torch.cat([part.topk(2).indices.sort(1).values for part in outputs], 1).tolist()


def test_without_a_length_sizes_double_from_the_first_batch(model):
    found = coverage(model)
    found.assess(iter(batches(suite(70), 10)), progress=False)
    assert found.results().growth["NC(0.4)"].sizes == (10, 20, 40, 70)


def test_growth_is_of_one_run_that_began_empty(model):
    found = coverage(model)
    found.assess(batches(suite(40), 10), progress=False)
    found.assess(batches(suite(40, seed=5), 10), progress=False)
    assert "NC(0.4)" not in found.results().growth
    assert "TKNP(2)" in found.results().growth
    found.reset()
    assert found.results().growth == {}
    found.assess([suite(10)], progress=False)
    assert "NC(0.4)" not in found.results().growth, "one size is no curve"


def test_values_are_not_changed_by_looking(model):
    watched, plain = coverage(model), coverage(model)
    watched.assess(batches(suite(80), 10), keep_inputs=True, slices=[], progress=False)
    for batch in batches(suite(80), 10):
        plain.update(batch)
    assert watched.values() == plain.values()


def test_cost_is_the_share_of_the_runs_time(model, monkeypatch):
    found = coverage(model, [nc.LVC(), nc.NC(0.4)])
    clock = iter(range(10_000))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(clock)))
    collection = CriterionCollection(found.criteria)
    collection.layout = found.run(suite(2))[0].layout
    recorder = GrowthRecorder(collection, 4)
    for batch in batches(suite(40), 10):
        collection.observe(found.run(batch)[0])
        recorder.after_batch()
    curves = recorder.curves()
    # Every reading takes one tick; the run from its beginning to its end, so many as there were readings.
    readings = {name: len(curve.sizes) for name, curve in curves.items()}
    assert readings == {"LVC": 3, "NC(0.4)": 3}
    elapsed = 2 * (2 + 2) + 1
    assert {name: curve.cost for name, curve in curves.items()} == pytest.approx(dict.fromkeys(readings, 3 / elapsed))

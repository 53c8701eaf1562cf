"""Rarefaction and forecasts by folds, against every draw of folds and against real draws of inputs."""

from itertools import combinations

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.abundance import cells_of_more
from neuralcov.criteria.cells_by_folds import CellsByFolds

FOLDS = 10
SIZES = torch.full((FOLDS,), 7)


def cells(seed=0, many=60):
    """Words of folds of some cells, as rare as cells are: most are hit by few folds."""
    draw = torch.Generator().manual_seed(seed)
    chance = torch.rand(many, 1, generator=draw) ** 3
    hit = torch.rand(many, FOLDS, generator=draw) < chance
    return hit, (hit.long() << torch.arange(FOLDS)).sum(1).to(torch.int16)


def test_every_draw_of_folds_is_meant():
    hit, words = cells()
    found = CellsByFolds.of([words[:25], words[25:].view(5, 7)], SIZES, 100)
    for drawn in range(1, FOLDS + 1):
        covered = [float(hit[:, list(some)].any(1).sum()) / 100 for some in combinations(range(FOLDS), drawn)]
        told = found.rarefied(7 * drawn)
        assert told.value == pytest.approx(np.mean(covered), rel=1e-9)
        assert told.error == pytest.approx(np.std(covered), abs=1e-7)
    assert found.rarefied(70).value == found.hit / 100


def test_between_folds_it_rises_and_below_one_nothing_is_told():
    found = CellsByFolds.of([cells()[1]], SIZES, 100)
    values = [found.rarefied(size).value for size in range(7, 71)]
    assert values == sorted(values)
    assert found.rarefied(6) is None
    assert found.rarefied(71) is None
    nobody = CellsByFolds.of([torch.zeros(5, dtype=torch.int16)], torch.zeros(FOLDS, dtype=torch.int64), 5)
    assert nobody.rarefied(1) is None


def test_a_forecast_is_chaos_and_its_error_that_of_leaving_out_folds():
    hit, words = cells(1)
    found = CellsByFolds.of([words], SIZES, 100)
    times = hit.sum(1)
    more = cells_of_more(int((times == 1).sum()), int((times == 2).sum()), FOLDS, FOLDS)
    assert found.forecast(140) == pytest.approx((found.hit + more) / 100)
    assert found.forecast(70) == found.hit / 100
    left = []
    for fold in range(FOLDS):
        rest = hit[:, [other for other in range(FOLDS) if other != fold]].sum(1)
        known, once, twice = (int(some.sum()) for some in (rest > 0, rest == 1, rest == 2))
        left.append((known + cells_of_more(once, twice, FOLDS - 1, FOLDS - 1)) / 100)
    spread = np.sqrt((FOLDS - 1) / FOLDS * np.square(np.array(left) - np.mean(left)).sum())
    assert found.forecast_error(140) == pytest.approx(spread)


def test_there_are_no_more_cells_than_all():
    alone = (1 << torch.arange(FOLDS)).to(torch.int16)
    assert CellsByFolds.of([alone], SIZES, FOLDS).forecast(700) == 1.0


def test_some_empty_folds_tell_no_forecast():
    few = SIZES.clone()
    few[3] = 0
    found = CellsByFolds.of([torch.tensor([1, 3], dtype=torch.int16)], few, 4)
    assert (found.forecast(140), found.forecast_error(140)) == (None, None)


def suite(many, seed):
    return torch.randn(many, 6, generator=torch.Generator().manual_seed(seed))


def measured(inputs):
    cov = nc.Coverage.of_layers({"fc": 6}, [nc.KMNC(40, errors=True), nc.SNAC(errors=True), nc.KMNC(30)])
    cov.calibrate(activations=[{"fc": suite(2000, 1)}])
    for batch in inputs.split(50):
        cov.update(activations={"fc": batch})
    return cov


def test_fewer_inputs_and_more_of_them_are_foretold_as_they_come():
    inputs = suite(800, 2)
    whole = measured(inputs[:400])
    told = whole.rarefied(100)
    assert set(told) == {"KMNC(40)", "SNAC"}, "where no folds are kept, nothing is told"
    drawn = [
        measured(inputs[torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:100]]).values(warn=False)
        for seed in range(40)
    ]
    assert told["KMNC(40)"][0] == pytest.approx(np.mean([values["KMNC(40)"] for values in drawn]), abs=0.01)
    ahead, came = whole.forecast(800), measured(inputs).values(warn=False)
    error = whole.results().growth["KMNC(40)"].forecast[0][2]
    assert abs(ahead["KMNC(40)"] - came["KMNC(40)"]) < 3 * error < 0.1
    assert whole.values(warn=False)["KMNC(40)"] < came["KMNC(40)"] - 0.02


def test_a_suite_sorted_by_what_it_shows_grows_as_one_that_is_shuffled():
    inputs = suite(400, 2)
    curves = []
    for order in (inputs, inputs[inputs.sum(1).argsort()]):
        curves.append(measured(order).results().growth["KMNC(40)"])
    assert curves[0] == curves[1]
    assert (curves[0].order, curves[0].sizes[0], curves[0].sizes[-1]) == ("rarefied", 40, 400)
    assert curves[0].forecast[0][0] == 800

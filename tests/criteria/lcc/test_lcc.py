"""LCC against brute force, and the laws that it promises."""

import math
from collections import Counter
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralcov as nc
from neuralcov.criteria.kind_set import as_kinds
from neuralcov.criteria.lcc import lcc as module
from neuralcov.testing.oracles.kinds import Layer, jackknife, over_layers, without_each_fold
from tests.criteria.lcc.lcc_support import WIDTHS, batch, kinds_by_layer, measured, oracle


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(2, 150),
    decisions=st.booleans(),
    flavour=st.sampled_from(["smooth", "rectified", "constant"]),
    resolution=st.sampled_from([0.2, 0.35, 0.5, 1.0]),
    directions=st.integers(1, 9),
    over=st.sampled_from(["median", "mean", "trimmed"]),
)
def test_everything_is_as_by_brute_force(seed, size, decisions, flavour, resolution, directions, over):
    training = batch(seed, size, decisions=decisions, flavour=flavour)
    suite = batch(seed + 1, 40, decisions=decisions, spread=1.3, flavour=flavour)
    criterion = nc.LCC(resolution=resolution, directions=directions, over=over, seed=seed % 3)
    coverage = measured(criterion, training, suite)
    layers = oracle(training, resolution=resolution, directions=directions, seed=seed % 3)
    kinds = kinds_by_layer(layers, suite)

    def together(values):
        values = [value for value in values if not math.isnan(value)]
        return pytest.approx(over_layers(values, over), rel=1e-9, abs=1e-12) if values else None

    values = {name: layers[name].value(shown) for name, shown in kinds.items()}
    assert coverage.values(warn=False)[criterion.name] == together(values.values())
    for row in coverage.by_layer():
        found = row.values[criterion.name]
        assert found == (pytest.approx(values[row.layer], rel=1e-9) if row.layer in values else None)
    figures = coverage.details()[criterion.name]
    counts = {name: Counter(shown) for name, shown in kinds.items()}
    assert figures.get("relative") == together(layers[name].relative(shown) for name, shown in kinds.items())
    assert figures["off_map"] == together(layers[name].off_map(shown) for name, shown in kinds.items())
    assert figures.get("off_map_expected") == together(layers[name].against_the_others()[1] for name in kinds)
    assert figures["next"] == together(list(c.values()).count(1) / 40 for c in counts.values())
    if decisions:
        new = {
            name: [k not in layers[name].table and k[0] in layers[name].boxes for k in c] for name, c in counts.items()
        }
        assert figures["new_decisions"] == together(sum(some) / len(some) for some in new.values())
    else:
        assert "new_decisions" not in figures
        assert coverage.values(warn=False)[criterion.name] <= 1
    folds = suite.folds(10).tolist()
    left = {name: without_each_fold(shown, folds) for name, shown in kinds.items()}
    each = range(len(set(folds)))
    sizes = [folds.count(fold) for fold in sorted(set(folds))]
    errors = [over_layers([layers[name].value(left[name][f]) for name in kinds], over) for f in each]
    whole = coverage.values(warn=False)[criterion.name]
    assert figures["error"] == pytest.approx(jackknife(whole, errors, sizes), rel=1e-7, abs=1e-12)
    if all(not math.isnan(layers[name].relative(kinds[name])) for name in kinds):
        errors = [over_layers([layers[name].relative(left[name][f]) for name in kinds], over) for f in each]
        expected = jackknife(figures["relative"], errors, sizes)
        assert figures["relative_error"] == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_few_layers_are_told():
    few = {name: torch.randn(50, width) for name, width in list(WIDTHS.items())[:4]}
    coverage = nc.Coverage.of_layers({name: WIDTHS[name] for name in few}, [nc.LCC()])
    coverage.calibrate(activations=few)
    coverage.update(activations=few)
    with pytest.warns(nc.CoverageWarning, match="median over 4 of 4 layers is moved by any odd one"):
        coverage.values()
    assert not measured(nc.LCC(), batch(0, 50), batch(1, 10)).findings()


@given(seed=st.integers(0, 10**6), decisions=st.booleans())
def test_the_keys_are_those_of_the_definition(seed, decisions):
    training, suite = batch(seed, 60, decisions=decisions), batch(seed + 1, 20, decisions=decisions)
    suite.layers["fc"][0] = 1e30
    coverage, layers = measured(nc.LCC(), training, suite), oracle(training)
    seen = coverage.states[0].seen
    for column, (name, kinds) in enumerate(kinds_by_layer(layers, suite).items()):
        own = as_kinds(seen.keys[seen.columns == column], column, hashed=True)
        expected = {layers[name].words(kind) for kind in kinds}
        assert {tuple(word % (1 << 64) for word in key) for key in own.tolist()} == expected


def test_a_layer_begins_with_its_own_key():
    assert module.starts(("fc",), 0, torch.device("cpu"))[0, 0].item() == -4719950013153998654
    assert Layer("fc", torch.zeros(2, 1).numpy(), None, [0, 0]).key == -4719950013153998654 % (1 << 64)


def test_training_data_observed_again_are_all_known():
    training = batch(3, 500)
    coverage = measured(nc.LCC(), training, training)
    assert coverage.values()["LCC"] == 1.0
    figures = coverage.details()["LCC"]
    assert figures["off_map"] == figures["new_decisions"] == 0.0


def test_what_lies_off_the_map_is_counted_beside_the_value():
    training = batch(0, 2000)
    far = nc.Activations(
        {name: 1e6 * outputs + 1e7 for name, outputs in batch(1, 50).layers.items()}, predictions=torch.zeros(50).long()
    )
    coverage = measured(nc.LCC(), training, far)
    assert coverage.values()["LCC"] == 0.0
    assert coverage.details()["LCC"]["off_map"] == 1.0


@given(seed=st.integers(0, 10**6))
def test_a_mean_is_submodular(seed):
    """What an input adds to a larger suite is at most what it adds to a smaller one."""
    training, suite, candidates = batch(seed, 80), batch(seed + 1, 12), batch(seed + 2, 8)
    criterion = nc.LCC(over="mean", resolution=0.2, directions=3)
    small, large = measured(criterion, training, suite.take(slice(0, 5))), measured(criterion, training, suite)
    few, many = (each.gain(None, activations=candidates)[criterion.name] for each in (small, large))
    assert bool((many <= few + 1e-12).all())
    assert bool((few >= 0).all())


@given(seed=st.integers(0, 10**6), size=st.integers(1, 5))
@settings(max_examples=15)
def test_rarefaction_is_the_mean_over_all_draws(seed, size):
    training, suite = batch(seed, 100), batch(seed + 1, 6)
    criterion = nc.LCC(over="mean", resolution=0.25, directions=2)
    coverage, layers = measured(criterion, training, suite), oracle(training, resolution=0.25, directions=2)
    kinds = kinds_by_layer(layers, suite)
    draws = [
        over_layers([layers[name].value([shown[i] for i in chosen]) for name, shown in kinds.items()], "mean")
        for chosen in combinations(range(6), size)
    ]
    assert coverage.rarefied(size)[criterion.name][0] == pytest.approx(sum(draws) / len(draws), rel=1e-9)


def test_rarefaction_of_all_inputs_is_the_value():
    coverage = measured(nc.LCC(), batch(0, 300), batch(1, 80))
    value, deviation = coverage.rarefied(80)["LCC"]
    assert value == pytest.approx(coverage.values()["LCC"], rel=1e-12)
    assert deviation == pytest.approx(0, abs=1e-12)


def test_absent_steps_show_no_kind():
    training, suite = batch(0, 60), batch(1, 20)
    there = torch.arange(20) < 12
    padded = nc.Activations(suite.layers, predictions=suite.predictions, present={"fc": there})
    coverage, layers = measured(nc.LCC(), training, padded), oracle(training)
    kinds = kinds_by_layer(layers, suite)
    values = {row.layer: row.values["LCC"] for row in coverage.by_layer()}
    assert values["fc"] == pytest.approx(layers["fc"].value(kinds["fc"][:12]))
    assert values["conv"] == pytest.approx(layers["conv"].value(kinds["conv"]))


def test_absent_steps_teach_no_kind():
    training, there = batch(0, 60), torch.arange(60) % 3 > 0
    decisions, folds = training.predictions[there].tolist(), training.folds(10)[there].tolist()
    layer = Layer("fc", training.layers["fc"][there].numpy(), decisions, folds)
    for parts in ([slice(0, 60)], [slice(0, 30), slice(30, 60)]):
        coverage = nc.Coverage.of_layers(WIDTHS, [nc.LCC()])
        coverage.calibrate(
            activations=[
                nc.Activations(part.layers, predictions=part.predictions, present={"fc": there[rows]})
                for rows, part in ((rows, training.take(rows)) for rows in parts)
            ]
        )
        suite = batch(1, 20)
        coverage.update(activations=suite)
        value = {row.layer: row.values["LCC"] for row in coverage.by_layer()}["fc"]
        shown = [
            layer.kind(row, d) for row, d in zip(suite.layers["fc"].numpy(), suite.predictions.tolist(), strict=True)
        ]
        assert value == pytest.approx(layer.value(shown))

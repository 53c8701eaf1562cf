"""LCC against brute force, and the laws that it promises."""

import math
from collections import Counter
from itertools import combinations
from statistics import fmean, median

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralcov as nc
from neuralcov.core.errors import CalibrationError, HyperParameterError, InputError
from neuralcov.criteria.kind_set import as_kinds
from neuralcov.criteria.lcc import lcc as module
from neuralcov.testing.oracles.kinds import Layer, jackknife, over_layers, without_each_fold

WIDTHS = {"conv": 5, "norm": 5, "hidden": 3, "fc": 4, "one": 1}


def batch(seed, size, *, decisions=True, spread=1.0, flavour="smooth"):
    generator = torch.Generator().manual_seed(seed)
    layers = {name: spread * torch.randn(size, width, generator=generator) for name, width in WIDTHS.items()}
    if flavour == "rectified":
        layers = {name: outputs.relu() for name, outputs in layers.items()}
    if flavour == "constant":
        layers["hidden"] = torch.full_like(layers["hidden"], 0.1)
    classes = torch.randint(0, 4, (size,), generator=generator)
    return nc.Activations(layers, predictions=classes if decisions else None)


def oracle(training, **settings):
    """Every layer by brute force."""
    decisions = None if training.predictions is None else training.predictions.tolist()
    folds = training.folds(10).tolist()
    return {
        name: Layer(name, outputs.numpy(), decisions, folds, **settings) for name, outputs in training.layers.items()
    }


def kinds_by_layer(layers, suite):
    decisions = [None] * suite.size if suite.predictions is None else suite.predictions.tolist()
    return {
        name: [layer.kind(row, decisions[i]) for i, row in enumerate(suite.layers[name].numpy())]
        for name, layer in layers.items()
        if layer.counts
    }


def measured(criterion, training, *suites):
    coverage = nc.Coverage.of_layers(training.layout.widths, [criterion])
    coverage.calibrate(activations=training)
    for suite in suites:
        coverage.update(activations=suite)
    return coverage


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


def test_a_batch_unlike_those_of_calibration_is_refused():
    coverage = measured(nc.LCC(), batch(0, 50))
    with pytest.raises(InputError, match=r"calibrated with predicted classes.*without them.*predictions=.*predict="):
        coverage.update(activations=batch(1, 5, decisions=False))
    coverage = measured(nc.LCC(), batch(0, 50, decisions=False))
    with pytest.raises(InputError, match=r"calibrated without predicted classes.*with them"):
        coverage.update(activations=batch(1, 5))


def test_one_batch_without_classes_settles_that_kinds_are_boxes():
    coverage = nc.Coverage.of_layers(WIDTHS, [nc.LCC()])
    coverage.calibrate(activations=[batch(0, 30), batch(1, 30, decisions=False), batch(2, 30)])
    coverage.update(activations=batch(3, 10, decisions=False))
    assert "new_decisions" not in coverage.details()["LCC"]


def test_layers_constant_in_training_are_left_out_and_named():
    coverage = measured(nc.LCC(), batch(0, 60, flavour="constant"), batch(1, 20))
    assert any("left out: hidden" in str(finding) for finding in coverage.findings())
    assert next(row for row in coverage.by_layer() if row.layer == "hidden").values["LCC"] is None


def test_only_constant_layers_are_an_error():
    coverage = nc.Coverage.of_layers({"fc": 3}, [nc.LCC()])
    coverage.calibrate(activations={"fc": torch.ones(20, 3)})
    coverage.update(activations={"fc": torch.randn(5, 3)})
    with pytest.raises(InputError, match="could place none of 5 inputs: every layer they have was constant"):
        coverage.values()


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


def test_calibration_on_disk_teaches_the_same(small_blocks):
    batches = [batch(seed, 40) for seed in range(5)]
    states = []
    for memory in (1, "16GiB"):
        coverage = nc.Coverage.of_layers(WIDTHS, [nc.LCC(memory=memory)])
        coverage.calibrate(activations=batches)
        coverage.update(activations=batch(9, 30))
        states.append(coverage.states[0].seen)
    assert all(torch.equal(a, b) for a, b in zip(*([s.keys, s.counts, s.marks] for s in states), strict=True))


def test_files_hold_all_that_show_merge_and_compare_need(tmp_path, monkeypatch):
    training, first, second = batch(0, 200), batch(1, 30), batch(2, 30)
    coverage = measured(nc.LCC(), training, first)
    coverage.save_calibration(tmp_path / "train.ncal")
    monkeypatch.setattr(module, "_LARGEST_TABLE", 100)
    coverage.save(tmp_path / "first.ncov")
    other = measured(nc.LCC(), training, second)
    other.save(tmp_path / "second.ncov")
    loaded = nc.Coverage.load(tmp_path / "first.ncov")
    assert (loaded.values(), loaded.details(), loaded.rarefied(10)) == (
        coverage.values(),
        coverage.details(),
        coverage.rarefied(10),
    )
    loaded.merge(nc.Coverage.load(tmp_path / "second.ncov"))
    coverage.merge(other)
    assert (loaded.values(), loaded.details()) == (coverage.values(), coverage.details())
    with pytest.raises(CalibrationError, match="calibration= the saved calibration"):
        loaded.update(activations=second)
    again = nc.Coverage.load(tmp_path / "first.ncov", calibration=tmp_path / "train.ncal")
    again.update(activations=second)
    assert again.values() == coverage.values()


@pytest.mark.parametrize(
    "wrong", [{"resolution": 0}, {"directions": 0}, {"directions": 1.5}, {"over": "max"}, {"seed": -1}, {"memory": "x"}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(HyperParameterError, match=next(iter(wrong))):
        nc.LCC(**wrong)


def test_nothing_is_relative_for_a_suite_on_top_of_another():
    coverage = measured(nc.LCC(), batch(0, 200), batch(1, 30))
    assert "relative" in coverage.results().details["LCC"]
    before = coverage.values()
    coverage.update(activations=batch(2, 30))
    figures = coverage.results(before=before).details["LCC"]
    assert "off_map" in figures
    assert not {"relative", "relative_error"} & set(figures)


class Regression(torch.nn.Module):
    """A model whose output has no class to read."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 6)

    def forward(self, x):
        return self.layer(x).view(-1, 2, 3)


def test_a_model_without_readable_classes_is_measured_by_boxes():
    torch.manual_seed(0)
    model, x = Regression(), torch.randn(200, 4)
    coverage = nc.Coverage(model, [nc.LCC(over="mean")])
    coverage.calibrate([x])
    coverage.assess([torch.randn(50, 4)])
    assert "new_decisions" not in coverage.details()["LCC(over=mean)"]
    told = nc.Coverage(model, [nc.LCC(over="mean")], predict=lambda output: output.flatten(1).argmax(1))
    told.calibrate([x])
    told.assess([torch.randn(50, 4)])
    assert "new_decisions" in told.details()["LCC(over=mean)"]


def test_a_forecast_is_the_value_of_more_inputs_of_the_sort():
    coverage = measured(nc.LCC(over="mean", resolution=0.25, directions=3), batch(0, 4000), batch(1, 300))
    name = coverage.criteria[0].name
    assert coverage.forecast(300)[name] == pytest.approx(coverage.values()[name], rel=1e-9)
    foretold = coverage.forecast(1200)[name]
    coverage.update(activations=batch(2, 900))
    assert coverage.values()[name] == pytest.approx(foretold, rel=0.03)
    with pytest.raises(InputError, match=r"forecast\(7\): expected a whole number from 1200 on"):
        coverage.forecast(7)


# Rarity


@pytest.mark.parametrize("decisions", [True, False])
@pytest.mark.parametrize("flavour", ["smooth", "constant"])
def test_rarity_is_the_mean_weight_of_an_inputs_kinds(decisions, flavour):
    training = batch(0, 300, decisions=decisions, flavour=flavour)
    suite = batch(1, 40, decisions=decisions, spread=1.5, flavour=flavour)
    coverage = measured(nc.LCC(), training)
    layers = oracle(training)
    kinds = kinds_by_layer(layers, suite)
    expected = [
        sum(layers[name].table.get(shown[row], 1) ** -0.5 for name, shown in kinds.items()) / len(kinds)
        for row in range(suite.size)
    ]
    assert coverage.criteria[0].rarity(suite).tolist() == pytest.approx(expected)


def test_what_is_not_finite_has_no_rarity():
    coverage = measured(nc.LCC(), batch(0, 50))
    suite = batch(1, 3)
    suite.layers["fc"][1, 0] = torch.nan
    assert coverage.criteria[0].rarity(suite).isnan().tolist() == [False, True, False]


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
@pytest.mark.parametrize("over", ["mean", "median"])
def test_figures_of_layers_are_what_is_brought_together(over):
    generator = torch.Generator().manual_seed(5)
    layers = {name: torch.randn(400, 3, generator=generator) for name in ("a", "b", "c")}
    cov = nc.Coverage.of_layers({"a": 3, "b": 3, "c": 3}, [nc.LCC(over=over)])
    cov.calibrate(activations={name: rows[:300] for name, rows in layers.items()})
    assert all(row.figures == {} for row in cov.by_layer())
    cov.update(activations={name: rows[300:] for name, rows in layers.items()})
    (name,) = cov.values()
    together = {"mean": fmean, "median": median}[over]
    for figure in ("relative", "off_map", "next"):
        found = [row.figures[f"{name}.{figure}"] for row in cov.by_layer()]
        assert together(found) == pytest.approx(cov.details()[name][figure], rel=1e-12)
    # On top of other inputs what is relative to the size of one suite is not told of layers either.
    on_top = cov.results(before=cov.values()).layers
    assert set(on_top[0].figures) == {f"{name}.off_map", f"{name}.next"}

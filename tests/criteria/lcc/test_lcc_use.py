"""LCC in use: absent steps, constant layers, files, models without classes, rarity and forecasts."""

from statistics import fmean, median

import pytest
import torch

import neuralcov as nc
from neuralcov.core.errors import CalibrationError, HyperParameterError, InputError
from neuralcov.criteria.lcc import lcc as module
from tests.criteria.lcc.lcc_support import WIDTHS, batch, kinds_by_layer, measured, oracle


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

"""Files with LCC, which came after the golden files of schema 2, load for ever and give what they gave then.

Made once, on the data of schema 2, by ``python -m tests.golden.test_golden_lcc``; never make them again. No file holds
errors: they are worked out from which folds have shown each kind, by a formula that was bettered since, and
``expected.json`` has those.
"""

import json
import warnings
from pathlib import Path

import pytest

import neuralcov as nc
from tests.golden import subjects
from tests.golden.test_golden import batches

FOLDER = Path(__file__).parent / "lcc"
DATA = Path(__file__).parent / "schema-2"
SETTINGS = {"lcc": nc.LCC(), "lcc_coarse": nc.LCC(resolution=0.2, directions=3, over="mean", seed=7)}


def measured(criterion):
    coverage = nc.Coverage.of_layers(subjects.WIDTHS, [criterion])
    coverage.calibrate(FOLDER / "training.ncal")
    data = batches(DATA)
    for rows in (slice(0, 10), slice(10, 24)):
        coverage.update(activations=data["suite"].take(rows))
    return coverage


def found(coverage):
    """Return all that must stay, and what more inputs make of it."""
    (name,) = coverage.values(warn=False)
    data = batches(DATA)
    before = {
        "value": coverage.values(warn=False)[name],
        "by_layer": [row.values[name] for row in coverage.by_layer()],
        "details": coverage.details()[name],
        "rarefied": list(coverage.rarefied(12)[name]),
        "gain": coverage.gain(activations=data["candidates"])[name].tolist(),
        "calibration": coverage.calibration_ids()[name],
    }
    coverage.update(activations=data["candidates"])
    return {**before, "after": coverage.values(warn=False)[name]}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_state_with_lcc_gives_what_it_gave(name):
    then = json.loads((FOLDER / "expected.json").read_text())[name]
    loaded = nc.Coverage.load(FOLDER / f"{name}.ncov")
    for coverage in (loaded, measured(SETTINGS[name])):
        now = found(coverage)
        assert now["calibration"] == then["calibration"]
        for part in ("value", "after", "by_layer", "rarefied", "gain"):
            assert now[part] == pytest.approx(then[part], rel=1e-9, abs=1e-12), part
        # Figures may be added.
        assert {key: now["details"][key] for key in then["details"]} == pytest.approx(then["details"], rel=1e-9)


def make():
    """Write the calibration, a state of each setting, and what they give."""
    FOLDER.mkdir()
    coverage = nc.Coverage.of_layers(subjects.WIDTHS, list(SETTINGS.values()))
    coverage.calibrate(activations=batches(DATA)["training"])
    coverage.save_calibration(FOLDER / "training.ncal")
    expected = {}
    for name, criterion in SETTINGS.items():
        coverage = measured(criterion)
        coverage.save(FOLDER / f"{name}.ncov")
        expected[name] = found(coverage)
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore", nc.CoverageWarning)
    make()

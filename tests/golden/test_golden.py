"""Files that earlier versions wrote load for ever and give what they gave then."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import neuralcov as nc
from tests.golden import subjects

FOLDERS = sorted(path for path in Path(__file__).parent.iterdir() if path.name.startswith("schema-"))
# Criteria whose definition was raised since; of the last one the value changed even for the same inputs.
OLDER = ["dsc", "lsc", "mdsc", "lvc", "lvc_groups"]
DEALT_ANEW = "lvc_groups"
CASES = [(folder, name) for folder in FOLDERS for name in subjects.settings()]


def expected(folder):
    return json.loads((folder / "expected.json").read_text())


def batches(folder):
    stored = np.load(folder / "data.npz")
    names = {key.partition("/")[0] for key in stored.files}
    parts = {
        name: {key.partition("/")[2]: stored[key] for key in stored.files if key.startswith(f"{name}/")}
        for name in names
    }
    return {name: subjects.activations(part) for name, part in parts.items()}


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        yield


def test_there_are_golden_files():
    assert FOLDERS


@pytest.mark.parametrize(("folder", "name"), CASES, ids=[f"{folder.name}-{name}" for folder, name in CASES])
def test_a_state_gives_what_it_gave(folder, name):
    then = expected(folder)["states"][name]
    # States of LVC are whitened as they are loaded.
    near = 1e-9 if name.startswith("lvc") else 1e-12
    coverage = nc.Coverage.load(folder / f"{name}.ncov")
    assert coverage.values() == {then["name"]: pytest.approx(then["value"], rel=near)}
    rows = [row.values[then["name"]] for row in coverage.by_layer()]
    assert rows == [None if value is None else pytest.approx(value, rel=near) for value in then["by_layer"]]
    assert coverage.calibration_ids()[then["name"]] == then["calibration"]


@pytest.mark.parametrize(("folder", "name"), CASES, ids=[f"{folder.name}-{name}" for folder, name in CASES])
def test_a_state_goes_on_with_its_calibration(folder, name):
    then, data = expected(folder)["states"][name], batches(folder)
    learns = subjects.settings()[name].learns
    coverage = nc.Coverage.load(folder / f"{name}.ncov", calibration=folder / "training.ncal" if learns else None)
    if then.get("definition", 1) < subjects.settings()[name].definition:
        for step in (coverage.update, coverage.gain, coverage.admit):
            with pytest.raises(nc.NeuralcovError, match=r"measured under definition 1, .*: measure again"):
                step(activations=data["candidates"])
        return
    gain = coverage.gain(activations=data["candidates"])[then["name"]]
    assert gain.tolist() == pytest.approx(then["gain"], rel=1e-9, abs=1e-12)
    if then["scores"]:
        scores = coverage.scores(activations=data["candidates"])[then["name"]]
        assert scores.tolist() == pytest.approx(then["scores"], rel=1e-9)
    coverage.update(activations=data["candidates"])
    assert coverage.values()[then["name"]] == pytest.approx(then["after"], rel=1e-12)


@pytest.mark.parametrize("name", OLDER)
def test_a_state_of_an_older_definition_is_shown_and_merged_with_its_like_and_nothing_else(name, tmp_path):
    folder = Path(__file__).parent / "schema-1"
    then, data = expected(folder)["states"][name], batches(folder)
    path = folder / f"{name}.ncov"
    nc.Coverage.load(path).save(tmp_path / "again.ncov")
    loaded = [
        nc.Coverage.load(path),
        nc.Coverage.load(path, calibration=folder / "training.ncal"),
        nc.Coverage.load(tmp_path / "again.ncov"),
    ]
    restored = nc.Coverage.load(path)
    restored.restore(loaded[0].snapshot())
    for coverage in [*loaded, restored, loaded[0] + 0]:
        assert coverage.values()[then["name"]] == pytest.approx(then["value"], rel=1e-9)
        for action in (coverage.update, coverage.gain, coverage.admit):
            with pytest.raises(nc.NeuralcovError, match=r": measured under definition 1, .*: measure again$"):
                action(activations=data["candidates"])
    fresh = nc.Coverage.of_layers(subjects.WIDTHS, [subjects.settings()[name]])
    fresh.calibrate(folder / "training.ncal")
    fresh.update(activations=data["suite"])
    with pytest.raises(nc.NeuralcovError, match="this coverage has definition 2, the other"):
        fresh.merge(loaded[0])
    # The same suite once more covers what it did before.
    loaded[0].merge(loaded[2])
    assert loaded[0].values()[then["name"]] == pytest.approx(then["value"], rel=1e-9)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_calibration_serves_every_criterion(folder):
    data = batches(folder)
    for name, criterion in subjects.settings().items():
        coverage = nc.Coverage.of_layers(subjects.WIDTHS, [criterion])
        if criterion.learns:
            coverage.calibrate(folder / "training.ncal")
        for rows in (slice(0, 10), slice(10, 24)):
            coverage.update(activations=data["suite"].take(rows))
        value = expected(folder)["states"][name]["value"]
        near = 0.2 if name == DEALT_ANEW else 1e-9
        assert coverage.values()[criterion.name] == pytest.approx(value, rel=near), name


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_state_goes_on_with_its_model(folder):
    then = expected(folder)["model"]
    coverage = nc.Coverage.load(folder / "model.ncov", subjects.Classifier())
    assert coverage.values() == pytest.approx(then["before"], rel=1e-9)
    coverage.update(subjects.pictures()[12:].float() / 255)
    assert coverage.values() == pytest.approx(then["after"], rel=1e-6)


@pytest.mark.parametrize("name", ["images", "texts"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_campaign_goes_on(folder, name, tmp_path):
    then = expected(folder)[name]
    shutil.copytree(folder / name, tmp_path / name)
    build = subjects.image_fuzzer if name == "images" else subjects.text_fuzzer
    found = build(tmp_path / name).resume(iterations=40, progress=False)
    assert (found.outputs, len(found.faults)) == (then["outputs"], then["faults"])
    assert found.values == pytest.approx(then["values"], rel=1e-6)
    on = build(tmp_path / name).resume(iterations=60, progress=False)
    assert on.iterations == 60
    assert torch.equal(on.inputs[: found.outputs], found.inputs)


@pytest.mark.parametrize("name", ["kmnc", "lsc", "npc_structure", "npc_activation"])
def test_what_is_learnt_anew_is_known_by_its_first_id(name):
    """A campaign of schema 1 goes on with criteria that are calibrated on the same data today."""
    folder = Path(__file__).parent / "schema-1"
    then, data = expected(folder)["states"][name], batches(folder)
    coverage = nc.Coverage.of_layers(subjects.WIDTHS, list(subjects.settings().values()))
    coverage.calibrate(activations=data["training"], held_out=data["held_out"])
    assert coverage.calibration_ids()[then["name"]] != then["calibration"]
    assert coverage.has_calibration(then["name"], then["calibration"])
    other = nc.Coverage.of_layers(subjects.WIDTHS, list(subjects.settings().values()))
    other.calibrate(activations=data["held_out"])
    assert not other.has_calibration(then["name"], then["calibration"])

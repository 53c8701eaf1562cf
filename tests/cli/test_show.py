"""What commands measure by default, ``show``, and tables in a narrow terminal."""

import json
from pathlib import Path

import pytest
from safetensors.torch import save_file

import neuralcov as nc
from neuralcov import demo
from neuralcov.cli import defaults
from neuralcov.report.text import show_value


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "net.safetensors"
    save_file(demo.train_digits(epochs=4, progress=False).state_dict(), path)
    return path


def test_defaults_are_what_the_documentation_recommends(run, tmp_path, weights, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    common = "measure", "demo:digits", "--weights", weights, "--data", "demo:digits"
    code, out, _ = run(*common, "--calibrate", "demo:digits", "--save", tmp_path / "a.ncov",
                       "--save-calibration", tmp_path / "a.ncal", "--by-layer", "--missing")  # fmt: skip
    assert code == 0
    saved = nc.Coverage.load(tmp_path / "a.ncov")
    assert list(saved.values(warn=False)) == ["LCC", "KMNC(100)", "SNAC", "DSC(0.1, layers=fc1, traces=20000)"]
    assert "as varied as" in " ".join(out.replace("│", " ").split())
    assert "off the map" in " ".join(out.replace("│", " ").split())
    assert "neurons of which nothing is covered" in out
    # Numbers keep their place in 80 columns.
    for value in saved.values(warn=False).values():
        assert show_value(value) in out
    assert max(map(len, out.splitlines())) <= 80
    again, out, _ = run(*common, "--calibrate", tmp_path / "a.ncal")
    assert (again, "DSC(0.1, layers=fc1" in out) == (0, True)
    code, out, _ = run(*common)
    assert (code, "NLC" in out, "TKNC(10)" in out) == (0, True, True)


def test_pages_name_the_defaults():
    root = Path(__file__).parents[2]
    measuring = (root / "docs" / "measuring.md").read_text(encoding="utf-8")
    recommended = [criterion.name for criterion in defaults.with_training_data(["conv", "fc1", "fc2"])]
    for name in (*recommended, *(criterion.name for criterion in defaults.without_training_data())):
        assert f"`{name}`" in measuring, name


def test_show_prints_a_saved_state(run, tmp_path, weights):
    run("measure", "demo:digits", "--weights", weights, "--data", "demo:digits", "-c", "NC(0.75)", "-c", "TKNP(3)",
        "--save", tmp_path / "a.ncov", "--slices", "class")  # fmt: skip
    code, out, _ = run("show", tmp_path / "a.ncov", "--by-layer", "--missing", "--json", tmp_path / "a.json")
    assert code == 0
    for word in ("597 inputs", "NC(0.75)", "TKNP(3)", "conv2", "by class", "neurons of which"):
        assert word in out
    written = json.loads((tmp_path / "a.json").read_text())
    saved = nc.Coverage.load(tmp_path / "a.ncov")
    assert written["values"] == saved.values()
    assert {k: {n: tuple(v) for n, v in some.items()} for k, some in written["missing"].items()} == saved.uncovered()
    assert run("show", tmp_path / "nothing.ncov")[0] == 2

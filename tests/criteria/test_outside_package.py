"""Criteria of a package outside ours: installed, found by its entry point, measured, saved, loaded and proved."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "outside_package"
PAGE = Path(__file__).parents[2] / "docs" / "adding-a-criterion.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
FILES = {path.name: path.read_text() for path in (PACKAGE / "src" / "acme").glob("*.py")}
ENTRY_POINTS = "[neuralcov.criteria]\nacme = acme\n"

SAVE = """
import sys, torch, neuralcov as nc
from neuralcov.core.criterion import Criterion
from neuralcov.sources.names import criterion_from_text
assert "acme" not in sys.modules
criteria = [criterion_from_text(text) for text in ("silent:0.1", "peaks", "louderthanusual:times=2")]
assert {type(criterion).__module__ for criterion in criteria} == {"acme.silent", "acme.peaks", "acme.loud"}
rows = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
layers = {"a": rows[:, :4], "b": rows[:, 4:]}
cov = nc.Coverage.of_layers({"a": 4, "b": 4}, criteria)
cov.calibrate(activations=layers)
cov.update(activations={name: 2 * outputs for name, outputs in layers.items()})
cov.save(sys.argv[1])
cov.save_calibration(sys.argv[2])
print(cov.values(), cov.calibration_ids())
"""

LOAD = """
import sys, neuralcov as nc
assert "acme" not in sys.modules
cov = nc.Coverage.load(sys.argv[1])
print(cov.values(), cov.calibration_ids())
again = nc.Coverage.load(sys.argv[1], calibration=sys.argv[2])
assert again.values() == cov.values()
fresh = nc.Coverage.of_layers({"a": 4, "b": 4}, [type(criterion)(**criterion.parameters) for criterion in cov.criteria])
fresh.calibrate(sys.argv[2])
assert fresh.calibration_ids() == cov.calibration_ids()
"""

SHOW_CALIBRATION = """
import sys, neuralcov as nc
from neuralcov.coverage.store import load_calibration
import torch
assert "acme" not in sys.modules
print(sorted(each.label for each in load_calibration(sys.argv[1], torch.device("cpu")).calibration.of_training))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Install the package into a folder of its own."""
    folder = tmp_path_factory.mktemp("outside")
    target = folder / "installed"
    if importlib.util.find_spec("setuptools") and importlib.util.find_spec("pip"):
        source = shutil.copytree(PACKAGE, folder / "source")
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    else:
        shutil.copytree(PACKAGE / "src" / "acme", target / "acme")
        described = target / "acme-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (described / "entry_points.txt").write_text(ENTRY_POINTS)
    return target


def run(place, code, *arguments):
    """Run code where the package is installed, and return what it prints."""
    path = ":".join([str(place), *sys.path])
    call = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    done = subprocess.run(call, capture_output=True, text=True, env={"PYTHONPATH": path, "PATH": ""})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_shows_the_package():
    shown = [name for name, code in FILES.items() if code in BLOCKS]
    assert sorted(shown) == ["loud.py", "peaks.py", "silent.py"]


def test_authors_import_what_is_public():
    lines = (line for code in FILES.values() for line in code.splitlines())
    modules = {line.split()[1] for line in lines if line.startswith("from neuralcov")}
    assert modules == {"neuralcov.criteria"}


def test_what_the_page_says_is_so(place):
    run(place, "\n".join(code for code in BLOCKS if code not in FILES.values()))


def test_criteria_are_found_by_name_and_by_file(place, tmp_path):
    files = tmp_path / "suite.ncov", tmp_path / "training.ncal"
    saved = run(place, SAVE, *files)
    assert run(place, LOAD, *files) == saved
    assert run(place, SHOW_CALIBRATION, files[1]) == "['acme.loudness']\n"


def test_a_file_of_a_package_that_is_missing_says_so(place, tmp_path):
    files = tmp_path / "suite.ncov", tmp_path / "training.ncal"
    run(place, SAVE, *files)
    for name, code in (("criterion 'acme.Silent'", LOAD), ("statistic 'acme.loudness'", SHOW_CALIBRATION)):
        path = ":".join(sys.path)
        call = [sys.executable, "-c", code, *map(str, files if code is LOAD else files[1:])]
        done = subprocess.run(call, capture_output=True, text=True, env={"PYTHONPATH": path, "PATH": ""})
        assert f"holds the {name}, which no installed package defines" in done.stderr

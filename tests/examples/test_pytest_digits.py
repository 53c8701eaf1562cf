"""Run the example of the pytest plugin, as a user would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.support import environment, install_entry_points

FOLDER = Path(__file__).parents[2] / "examples" / "pytest_digits"


@pytest.fixture
def run(tmp_path):
    install_entry_points(tmp_path / "site")

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        variables = os.environ | environment(tmp_path / "site") | {"PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, env=variables)

    return run


def test_the_tests_pass_with_and_without(run, tmp_path):
    assert "13 passed" in run().stdout
    ended = run("--neuralcov", f"--neuralcov-contexts={tmp_path / 'tests.csv'}")
    assert ended.returncode == 0, ended.stdout
    assert "13 passed" in ended.stdout
    assert "1,801 inputs in 13 passes, 4 layers, 122 neurons" in ended.stdout
    assert "met: LCC.relative is" in ended.stdout
    header, *lines = (tmp_path / "tests.csv").read_text().splitlines()
    rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    assert len(rows) == 13
    # The inputs of the last test are among those of others.
    assert re.fullmatch(r"test_classifier.py::test_the_first_ten", rows[-1]["id"])
    assert all(float(rows[-1][f"{name}.lost"]) == 0 for name in ("LCC", "KMNC(100)", "SNAC"))
    assert all(float(row["LCC.lost"]) > 0 for row in rows[:-1])


def test_fewer_tests_fail_under_the_limit(run):
    ended = run("--neuralcov", "-k", "test_the_first_ten", "--neuralcov-fail-under", "LCC=0.5")
    assert ended.returncode == 1
    assert "NOT MET: LCC is" in ended.stdout
    assert "1 passed" in ended.stdout

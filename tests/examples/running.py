"""Run an example as a user would, and read what it prints."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def run(name, *packages, folder=None):
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-W", "ignore", str(FOLDER / name)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def values(line):
    """Numbers of a printed mapping."""
    return {name: float(value) for name, value in re.findall(r"'([^']+)': ([\d.]+)", line)}


def lines(text):
    """Numbers of lines that hold a name and a number."""
    return {name: float(value) for name, value in (line.split() for line in text.splitlines())}

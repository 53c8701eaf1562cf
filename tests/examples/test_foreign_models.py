"""Run the examples of models that another runtime computes, as a user would."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def run(name, *packages):
    for package in packages:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-W", "ignore", str(FOLDER / name)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def values(line):
    return {name: float(value) for name, value in re.findall(r"'([^']+)': ([\d.]+)", line)}


def test_an_onnx_model_is_covered_as_the_torch_model():
    torch_line, onnx_line = run("onnx_model.py", "onnx", "onnxruntime", "onnxscript").splitlines()
    assert torch_line.startswith("torch")
    assert onnx_line.startswith("ONNX")
    assert values(onnx_line) == pytest.approx(values(torch_line), rel=1e-3)
    assert list(values(onnx_line)) == ["LCC", "KMNC(100)", "SNAC", "NC(0.75)"]


def test_a_keras_model():
    first, second, *layers = run("keras_model.py", "keras", "sklearn").splitlines()
    assert float(first.split()[-1]) > 0.9
    assert 0 < values(second)["KMNC(100)"] < 1
    assert [line.split()[0] for line in layers] == ["conv1", "conv2", "fc1", "fc2"]


def test_a_perceptron_of_scikit_learn():
    first, second, third = run("sklearn_mlp.py", "sklearn", "skl2onnx", "onnxruntime").splitlines()
    assert float(first.split()[-1]) > 0.9
    assert 0 < values(second)["KMNC(100)"] < 1
    assert third == "classes as scikit-learn's: 100%"

"""Run the examples of models that another runtime computes, as a user would."""

import pytest

from tests.examples.running import run, values


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

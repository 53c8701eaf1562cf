"""Commands on a file of ONNX."""

import json

import pytest
import torch

from neuralcov import demo

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def file(digits_net, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "digits.onnx"
    axes = {"x": {0: "batch"}}
    with pytest.warns(DeprecationWarning, match="legacy"):
        torch.onnx.export(
            digits_net, (torch.zeros(2, 1, 8, 8),), path, dynamo=False, input_names=["x"], dynamic_axes=axes
        )
    return path


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
def test_measure_agrees_with_the_torch_model(run, file, digits_net, tmp_path):
    import neuralcov as nc

    code, output, complaint = run(
        "measure", file, "--data", "demo:digits", "--calibrate", "demo:digits", "-c", "lcc", "-c", "kmnc:100",
        "--json", tmp_path / "found.json", "--save", tmp_path / "suite.ncov",
    )  # fmt: skip
    assert code == 0, complaint
    assert "KMNC(100)" in output
    cov = nc.Coverage(digits_net, [nc.LCC(), nc.KMNC(100)])
    cov.calibrate(demo.digits("train").pixels().split(100), progress=False)
    cov.assess(demo.digits("test").pixels().split(100), progress=False)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["values"] == pytest.approx(cov.values(warn=False), rel=1e-5)
    assert nc.Coverage.load(tmp_path / "suite.ncov", file).inputs == 597


def test_layers_are_listed(run, file):
    code, output, complaint = run("layers", file)
    assert code == 0, complaint
    assert all(name in output for name in ("conv1", "conv2", "fc1", "fc2"))


def test_mistakes_end_in_a_sentence(run, file, tmp_path):
    code, _, complaint = run("measure", tmp_path / "none.onnx", "--data", "demo:digits")
    assert code == 2
    assert "there is no such model file" in " ".join(complaint.split())
    code, _, complaint = run("measure", file, "--data", "demo:digits", "--weights", tmp_path / "net.pt")
    assert code == 2
    assert "an ONNX file holds its weights" in " ".join(complaint.split())

"""The command `train`, and the layers of networks that take noise or tokens."""

import json

import pytest
from typer.testing import CliRunner

from neuralcov.cli.app import app
from neuralcov.core.errors import InputError


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_train_shows_progress_and_writes_weights_and_card(run, tmp_path):
    output = tmp_path / "deep" / "digits.safetensors"
    result = run(
        "train", "digits", "--data", "digits", "-o", str(output), "--epochs", "2", "--limit", "200", "--seed", "3"
    )
    assert result.exit_code == 0, result.output
    assert "epoch 1/2 (50%" in result.stdout
    assert "accuracy" in result.stdout
    assert "weights in" in result.stdout
    card = json.loads(output.with_suffix(".json").read_text())
    assert (card["seed"], card["epochs"], card["inputs"]) == (3, 2, 200)
    assert output.stat().st_mode & 0o044 == 0o044


def test_one_epoch_is_not_many(run, tmp_path):
    output = str(tmp_path / "digits.safetensors")
    result = run("train", "digits", "-o", output, "--epochs", "1", "--limit", "40")
    assert "after 1 epoch\n" in result.stdout


def test_train_refuses_wrong_use(run, tmp_path):
    for arguments, sentence in [
        (("resnet18",), "there is no recipe to train 'resnet18'"),
        (("digits", "--device", "cuda:99"), "device 'cuda:99' cannot be used here"),
        (("digits(colour=1)", "--limit", "8"), "unexpected keyword argument 'colour'"),
    ]:
        result = run("train", *arguments, "-o", str(tmp_path / "x.safetensors"))
        assert isinstance(result.exception, InputError)
        assert sentence in str(result.exception)


@pytest.mark.parametrize(
    ("model", "total"),
    [
        ("zoo:lstm", "129 layers, 32,769 neurons"),
        ("zoo:generator", "11 layers, 6,403 neurons"),
        ("zoo:mobilenet_v2(num_classes=1000)", "53 layers, 18,056 neurons"),
        ("zoo:net_classifier", "5 layers, 364 neurons"),
        ("zoo:digits", "4 layers, 122 neurons"),
    ],
)
def test_layers_know_the_shape_of_every_networks_input(model, total, run):
    result = run("layers", model)
    assert result.exit_code == 0, result.output
    assert total in result.stdout


def test_a_shape_the_model_does_not_take_is_said(run, tmp_path, monkeypatch):
    (tmp_path / "small.py").write_text(
        "from torch import nn\ndef make(): return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    for arguments, sentence in [
        (("small:make",), "does not take inputs of the guessed shape (1, 32, 32)"),
        (("small:make", "--input", "1,9,9"), "does not take inputs of shape (1, 9, 9)"),
    ]:
        result = run("layers", *arguments)
        assert isinstance(result.exception, InputError)
        assert sentence in str(result.exception)
        assert "pass the shape of one input, such as --input 3,32,32" in str(result.exception)
        assert "\n" not in str(result.exception)
    assert "2 layers" in run("layers", "small:make", "--input", "1,8,8").stdout
    for text in ("1,-8,8", "0", "1,8,"):
        refused = run("layers", "small:make", "--input", text).exception
        assert f"--input {text!r}: expected whole numbers from 1, such as 3,32,32" in str(refused)

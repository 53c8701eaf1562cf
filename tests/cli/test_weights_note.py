"""A model without --weights is measured as it was built, and that is said."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from neuralcov.sources.models import weights_of

MODULE = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "own_weights.py").write_text(MODULE)
    images = np.random.default_rng(0).random((12, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", inputs=images, labels=np.arange(12) % 3)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("model", "weights", "origin", "words"),
    [
        ("own_weights:make", None, "as built", "own_weights:make gave a model as it was built; pass --weights FILE if"),
        ("own_weights:make", "net.safetensors", "given", None),
        ("demo:digits", None, "random", "demo:digits: no --weights, so these are random weights"),
    ],
)
def test_measure_says_whose_weights_it_measured(run, place, model, weights, origin, words):
    given = [] if weights is None else ["--weights", weights]
    code, _, err = run("measure", model, *given, "--data", "npz:x.npz", "-c", "nc", "--json", "a.json")
    assert code == 0, err
    written = json.loads((place / "a.json").read_text())
    assert written["weights"] == origin
    assert written["notes"] == ([] if words is None else [err.strip().removeprefix("note: ")])
    assert (words is None and not err) or words in err


def test_a_model_without_parameters_has_no_weights_to_speak_of():
    assert weights_of("own_weights:bare", torch.nn.Flatten(), None) == ("as built", None)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("torchvision:resnet18", "random"),
        ("timm:resnet18", "random"),
        ("timm:resnet18(checkpoint_path='x.pt')", "as built"),
        ("zoo:inception", "as built"),
        ("hf:somebody/bert", "as built"),
        ("my.pkg:build", "as built"),
    ],
)
def test_sources_that_come_with_weights(text, origin):
    found, words = weights_of(text, torch.nn.Linear(2, 2), None)
    assert found == origin
    assert (words is not None) == (origin == "random" or text.startswith("my."))


def test_a_campaign_says_it_too(run, place):
    code, _, err = run(
        "fuzz", "run", "own_weights:make", "--data", "npz:x.npz", "--against", "demo:digits", "-n", 2, "--wave", 2,
        "-o", "c", "--no-shrink",
    )  # fmt: skip
    assert code == 0, err
    assert err.count("note: own_weights:make gave a model as it was built") == 1
    assert err.count("note: demo:digits: no --weights, so these are random weights") == 1

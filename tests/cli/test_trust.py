"""Names that stand in a campaign's folder are not called unless a person says so."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

MODULE = """
from pathlib import Path
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))

def tattle(**_):
    Path("called").touch()
    return make()
"""
SCALE = ["--mean", "0.5,0.4,0.3", "--std", "0.2,0.3,0.4"]


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A place with a model, data and weights."""
    place = tmp_path_factory.mktemp("trust")
    (place / "own_trust.py").write_text(MODULE)
    images = np.random.default_rng(0).integers(0, 256, (24, 3, 8, 8), dtype=np.uint8)
    torch.manual_seed(0)
    scope: dict = {}
    exec(MODULE, scope)
    net = scope["make"]()
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    with torch.no_grad():
        # Centred, so that the images fall into all classes and small changes move them.
        ready = (torch.from_numpy(images) / 255 - mean) / std
        net[3].bias -= net(ready).mean(0)
        labels = net(ready).argmax(1).numpy()
    save_file(net.state_dict(), place / "net.safetensors")
    np.savez(place / "x.npz", inputs=images, labels=labels)
    return place


@pytest.fixture
def place(started, monkeypatch):
    monkeypatch.chdir(started)
    monkeypatch.syspath_prepend(str(started))
    return started


@pytest.fixture
def campaign(run, place, tmp_path):
    """A campaign with faults; the data and the weights are gone afterwards, the model's module is not."""
    model = ["own_trust:make", "--weights", place / "net.safetensors"]
    code, _, err = run(
        "fuzz", "run", *model, "--data", "npz:x.npz", *SCALE, "-c", "nbc", "--calibrate", "npz:x.npz", "-n", 60,
        "--wave", 8, "-o", tmp_path / "c", "--no-shrink",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads((tmp_path / "c" / "summary.json").read_text())["faults"] > 0
    return tmp_path / "c"


def change(folder, **order):
    config = json.loads((folder / "config.json").read_text())
    config["notes"]["order"].update(order)
    (folder / "config.json").write_text(json.dumps(config))


COMMANDS = (["replay"], ["resume", "-n", 61, "--no-shrink"], ["shrink", 0])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_model_that_only_the_folder_names_is_not_built(run, campaign, command):
    name, *rest = command
    change(campaign, model="own_trust:tattle")
    code, _, err = run("fuzz", name, campaign, *rest)
    assert code == 2
    assert "this folder names the model own_trust:tattle; give it on the command line, or --trust" in err
    assert len(err.strip().splitlines()) == 1
    change(campaign, model="subprocess:getoutput(cmd='touch called')")
    assert run("fuzz", name, campaign, *rest)[0] == 2
    assert not (campaign.parent / "called").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_with_a_model_of_the_users_nothing_else_of_the_folder_is_called(run, campaign, place, command, monkeypatch):
    """Neither data nor calibration nor weights: the arrays in the folder serve."""
    monkeypatch.chdir(campaign.parent)
    name, *rest = command
    change(
        campaign, model="own_trust:tattle", data="own_trust:tattle", calibrate="own_trust:tattle",
        weights=str(campaign.parent / "gone.pt"),
    )  # fmt: skip
    model = ["own_trust:make", "--weights", place / "net.safetensors"]
    arguments = [model[0], *rest, *model[1:]]
    code, out, err = run("fuzz", name, campaign, *arguments)
    assert code == (1 if name == "replay" else 0), err
    assert "note:" not in err
    assert not (campaign.parent / "called").exists()
    if name == "replay":
        count = json.loads((campaign / "summary.json").read_text())["faults"]
        assert f"{count} of {count} faults are still there, {count} of them as they were; {count} are made anew" in out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_trust_uses_the_names_of_the_folder(run, campaign, place, command):
    name, *rest = command
    change(campaign, model="own_trust:tattle(reason='trusted')")
    code, _, err = run("fuzz", name, campaign, *rest, "--trust")
    assert code == (1 if name == "replay" else 0), err
    assert (place / "called").exists()
    (place / "called").unlink()


def test_a_second_model_and_styles_are_named_anew_too(run, campaign):
    change(campaign, against="own_trust:tattle")
    code, _, err = run("fuzz", "replay", campaign, "own_trust:make")
    assert code == 2
    assert "this folder names the second model own_trust:tattle; give it as --against MODEL" in err
    change(campaign, against=None, styles="/somewhere")
    code, _, err = run("fuzz", "replay", campaign, "own_trust:make")
    assert code == 2
    assert "this folder names the styles /somewhere; give it as --styles FOLDER" in err


def test_a_calibration_that_is_gone_is_not_learnt_again_from_what_the_folder_names(run, campaign, place):
    (campaign / "calibration.ncal").unlink()
    change(campaign, calibrate="own_trust:tattle")
    model = ["own_trust:make", "--weights", place / "net.safetensors"]
    code, _, err = run("fuzz", "resume", campaign, *model, "-n", 61)
    assert code == 2
    assert "calibration.ncal is missing, and the folder names the training data own_trust:tattle" in err
    assert run("fuzz", "replay", campaign, *model)[0] == 1  # needs none


def test_campaigns_of_earlier_versions_ask_for_their_data(run, campaign, place):
    config = json.loads((campaign / "config.json").read_text())
    del config["notes"]["preparation"]
    (campaign / "config.json").write_text(json.dumps(config))
    model = ["own_trust:make", "--weights", place / "net.safetensors"]
    code, _, err = run("fuzz", "replay", campaign, *model)
    assert code == 2
    assert f"this folder names the data npz:{place / 'x.npz'}; give it as --data DATA, or --trust" in err
    assert run("fuzz", "replay", campaign, *model, "--data", "npz:x.npz")[0] == 1
    assert run("fuzz", "replay", campaign, "--trust")[0] == 1
    images = np.load(place / "x.npz")
    np.savez(campaign.parent / "other.npz", inputs=255 - images["inputs"], labels=images["labels"])
    code, _, err = run("fuzz", "replay", campaign, *model, "--data", f"npz:{campaign.parent / 'other.npz'}")
    assert code == 2
    assert "the campaign there has seeds" in err


def test_a_model_without_its_weights_is_not_taken_for_a_mended_one(run, campaign, place):
    code, _, err = run("fuzz", "replay", campaign, "demo:digits")
    assert code == 2
    assert f"demo:digits has random weights here and the campaign ran with {place / 'net.safetensors'}" in err
    code, _, err = run("fuzz", "replay", campaign, "own_trust:make")
    assert code in (0, 1)
    assert "own_trust:make gave a model as it was built; pass --weights FILE" in err


def test_going_on_with_other_weights_is_refused(run, campaign, place):
    torch.manual_seed(5)
    other = {name: torch.randn_like(value) for name, value in _weights(place).items()}
    save_file(other, campaign.parent / "other.safetensors")
    arguments = ["own_trust:make", "--weights", campaign.parent / "other.safetensors"]
    code, _, err = run("fuzz", "resume", campaign, *arguments, "-n", 61)
    assert code == 2
    assert "Traceback" not in err
    code, _, _ = run("fuzz", "replay", campaign, *arguments)
    assert code in (0, 1)


def test_a_campaign_that_was_only_read_does_not_search_on(campaign, place):
    from neuralcov.cli.fuzz_trust import Given, reopen
    from neuralcov.core.errors import CampaignError

    bench = reopen(campaign, Given("own_trust:make", place / "net.safetensors"), searching=False)
    assert bench.fuzzer.load()
    with pytest.raises(CampaignError, match="was only read"):
        bench.fuzzer.run(iterations=80)


def test_a_damaged_preparation_is_said(run, campaign):
    config = json.loads((campaign / "config.json").read_text())
    config["notes"]["preparation"] = {"levels": "many"}
    (campaign / "config.json").write_text(json.dumps(config))
    code, _, err = run("fuzz", "replay", campaign, "own_trust:make")
    assert code == 2
    assert "how inputs are prepared cannot be read" in err


def test_a_copy_of_a_campaign_serves_as_well(run, campaign, place, tmp_path, monkeypatch):
    shutil.copytree(campaign, tmp_path / "elsewhere" / "c")
    monkeypatch.chdir(tmp_path / "elsewhere")
    arguments = ["own_trust:make", "--weights", place / "net.safetensors", "-n", 64, "--no-shrink"]
    code, out, err = run("fuzz", "resume", "c", *arguments)
    assert code == 0, err
    assert "64 seeds, " in out


def _weights(place):
    from safetensors.torch import load_file

    return load_file(place / "net.safetensors")

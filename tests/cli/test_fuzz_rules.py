"""Rules by name, ends by calls, and faults as a data set, from the command line."""

import json

import numpy as np
import pytest
from safetensors.torch import save_file

from neuralcov.fuzz import PUBLISHED, open_campaign
from neuralcov.fuzz.campaign.folder import CampaignFolder


@pytest.fixture(scope="module")
def weights(digits_net, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "digits.safetensors"
    save_file(digits_net.state_dict(), path)
    return path


def start(run, weights, folder, *more):
    return run(
        "fuzz", "run", "demo:digits", "--weights", weights, "--data", "demo:digits", "--seeds", 40, "--wave", 10,
        "-o", folder, "--no-shrink", *more,
    )  # fmt: skip


def test_published_rules(run, weights, tmp_path):
    code, _, err = start(run, weights, tmp_path / "a", "--rules", "published", "-n", 30)
    assert code == 2
    assert "say --initial-data DATA" in err
    first = "--initial-data", "demo:digits"
    code, _, err = start(run, weights, tmp_path / "b", "--rules", "published", "-n", 30, *first, "--beta", "0.7")
    assert code == 0, err
    assert CampaignFolder(tmp_path / "b").settings() == PUBLISHED.changed(beta=0.7, wave=10)
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    by_name = {mutation["name"]: mutation for mutation in config["mutations"]}
    assert 1.0 in by_name["contrast"]["parameters"]
    assert by_name["scaling"]["border"] == "white"
    assert config["validity"] == {"rule": "pixels", "alpha": 0.4, "beta": 0.7, "counted": "values"}
    # Coverage begins with a thousand training inputs, which forty seeds are far from.
    assert open_campaign(tmp_path / "b").config["coverage of the seeds"]["NLC"] > 0
    code, _, err = run("fuzz", "resume", tmp_path / "b", "--trust", "-n", 60, "--no-shrink")
    assert code == 0, err
    code, _, err = start(run, weights, tmp_path / "c", "--rules", "theirs", "-n", 30)
    assert code == 2
    assert "rules='theirs': expected 'ours', 'published', 'paper'" in err


def test_calls_examples_and_a_data_set(run, weights, tmp_path):
    code, _, err = start(run, weights, tmp_path / "c", "--calls", 150, "--max-per-group", 1, "--guide", "margin")
    assert code == 0, err
    campaign = open_campaign(tmp_path / "c")
    assert 150 <= campaign.state.counts.run < 160
    keys = [(fault.root, fault.after) for fault in campaign.faults]
    assert len(set(keys)) == len(keys) == campaign.state.counts.distinct
    code, out, err = run("fuzz", "export", tmp_path / "c", "-o", tmp_path / "d", "--dataset", "--limit", 3)
    assert code == 0, err
    assert "3 faults written to" in out
    assert np.load(tmp_path / "d" / "faults.npz")["labels"].shape == (3,)
    code, _, err = run("fuzz", "export", tmp_path / "c", "-o", tmp_path / "e", "--dataset", "--what", "queue")
    assert code == 2
    assert "expected faults alone" in err

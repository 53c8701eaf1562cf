"""A campaign as plain data, and its faults as a data set: against the log, the pictures and the labels."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.fuzz.campaign.dataset import export_dataset
from neuralcov.fuzz.campaign.overview import overview
from neuralcov.fuzz.campaign.reader import open_campaign
from neuralcov.sources.data import load_samples
from tests.fuzz.support import fuzzer_of


@pytest.fixture(scope="module")
def stored(net, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("overview") / "c"
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=24, guide="margin+coverage", folder=folder)
    fuzzer.run(calls=300)
    return open_campaign(folder)


def test_it_is_plain_and_adds_up(stored, digits):
    told = overview(stored, examples=2)
    assert json.loads(json.dumps(told)) == told
    counts = told["counts"]
    assert counts["faults saved"] == len(stored.faults) == sum(group["faults"] for group in told["groups"])
    assert counts["different faults"] == len({(fault.root, fault.after) for fault in stored.faults})
    assert counts["calls"] == stored.state.counts.run >= 300
    assert [group["faults"] for group in told["groups"]] == sorted(
        (group["faults"] for group in told["groups"]), reverse=True
    )
    held = Counter(name for fault in stored.faults for name in {stored.mutations[s.mutation].name for s in fault.steps})
    assert told["mutations"] == dict(held)
    for group in told["groups"]:
        assert len(group["examples"]) == min(2, group["faults"])
        order = [(len(example["needed"]), example["change"]) for example in group["examples"]]
        assert order == sorted(order)
        for example in group["examples"]:
            fault = stored.faults[example["number"]]
            apart = np.abs(fault.input.numpy() / 16.0 - digits.inputs[fault.root].numpy() / 16.0).mean()
            assert example["change"] == pytest.approx(apart)
            assert [example["label"], example["after"]] == [int(name) for name in group["group"][1:]]
            assert (stored.folder.faults / example["file"]).is_file()


def test_faults_become_a_data_set_that_commands_read(stored, tmp_path):
    count = export_dataset(stored, tmp_path / "data")
    assert count == len(stored.faults)
    arrays = np.load(tmp_path / "data" / "faults.npz")
    assert arrays["inputs"].shape == (count, 1, 8, 8)
    assert arrays["inputs"].dtype == np.uint8
    expected = {}
    for fault in stored.faults:
        picture = np.rint(fault.input.numpy() / 16 * 255).astype(np.uint8)
        expected.setdefault((fault.label, picture.tobytes()), 0)
        expected[fault.label, picture.tobytes()] += 1
    found = Counter((int(y), x.tobytes()) for x, y in zip(arrays["inputs"], arrays["labels"], strict=True))
    assert found == expected
    pictures = load_samples(f"folder:{tmp_path / 'data' / 'pictures'}")
    assert len(pictures.classes) >= int(arrays["labels"].max()) + 1
    again = Counter((int(y), x[:1].numpy().tobytes()) for x, y in zip(pictures.inputs, pictures.labels, strict=True))
    assert again == expected
    with pytest.raises(InputError, match="is not empty; name another folder"):
        export_dataset(stored, tmp_path / "data")


def test_different_faults_come_first_where_only_some_are_wanted(stored, tmp_path):
    different = len({(fault.root, fault.after) for fault in stored.faults})
    assert export_dataset(stored, tmp_path / "few", limit=different) == different
    inputs = np.load(tmp_path / "few" / "faults.npz")["inputs"]
    first = {}
    for fault in stored.faults:
        first.setdefault((fault.root, fault.after), fault.input)
    expected = torch.stack(list(first.values())).float() / 16 * 255
    assert np.array_equal(inputs, expected.round().byte().numpy())

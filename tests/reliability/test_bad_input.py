"""Files and options that are wrong, damaged or hostile: one sentence, the right exit code, nothing half written."""

import gzip
import io
import json
import os
import shutil
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from neuralcov_lab.data.mnist import read_idx
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching import fetch as fetching

MODULE = """
from pathlib import Path
import torch
from torch import nn

class Noted(nn.Sequential):
    def forward(self, x):
        Path("ran").touch()
        return super().forward(x)

def make():
    torch.manual_seed(0)
    return Noted(nn.Flatten(), nn.LazyLinear(16), nn.ReLU(), nn.Linear(16, 10))

class Huge(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        torch.empty(1 << 50)
        return self.fc(x.flatten(1))
"""
MODEL = "own_bad:make"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_bad.py").write_text(MODULE)
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 256, (30, 1, 8, 8), dtype=np.uint8), random.integers(0, 10, 30)
    np.savez(tmp_path / "x.npz", inputs=images, labels=labels)
    return tmp_path


def refused(found, words, code=2):
    ended, out, err = found
    assert ended == code, err
    assert "Traceback" not in out + err
    assert len([line for line in err.splitlines() if line.startswith("neuralcov:")]) == 1, err
    assert words in err.replace("\n", " "), err


def header(shape, dtype="<f4"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


# Data


def test_one_label_that_is_no_class(run, place):
    labels = np.zeros(30, np.int64)
    labels[3] = 2_000_000_000
    np.savez(place / "label.npz", inputs=np.zeros((30, 1, 8, 8), np.uint8), labels=labels)
    said = "label.npz: has label 2000000000: expected classes from 0, fewer than 10,000,000"
    refused(run("measure", MODEL, "--data", "npz:label.npz"), said)
    refused(run("fuzz", "run", MODEL, "--data", "npz:label.npz", "-o", "c", "-n", 4), said)
    assert not (place / "ran").exists()


@pytest.mark.parametrize("shape", [(1 << 33,), (1 << 62, 1 << 62), (30, 1, 8, 9)])
def test_arrays_that_say_they_are_longer_than_they_are(run, place, shape):
    with zipfile.ZipFile(place / "bomb.npz", "w") as zipped:
        zipped.writestr("inputs.npy", header(shape) + bytes(30 * 64))
    refused(run("measure", MODEL, "--data", "npz:bomb.npz"), "inputs.npy says")


def test_arrays_that_no_machine_could_hold(run, place, monkeypatch):
    monkeypatch.setattr("neuralcov.core.memory.memory_of", lambda device: 1 << 20)
    with zipfile.ZipFile(place / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("inputs.npy", header((1 << 22,), "|u1") + bytes(1 << 22))
    assert (place / "bomb.npz").stat().st_size < 10_000
    refused(run("measure", MODEL, "--data", "npz:bomb.npz"), "bomb.npz, unpacked, takes 16.8 MB")


@pytest.mark.parametrize("content", [b"", b"PK", None], ids=["empty", "two bytes", "cut"])
def test_cut_and_empty_archives(run, place, content):
    whole = (place / "x.npz").read_bytes()
    (place / "cut.npz").write_bytes(whole[: len(whole) // 2] if content is None else content)
    refused(run("measure", MODEL, "--data", "npz:cut.npz"), "cut.npz: not an .npz file of plain arrays")


def images(folder):
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(folder / name / "0.png")
    return folder


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_among_images(run, place):
    os.mkfifo(images(place / "pictures") / "b" / "1.png")
    refused(run("measure", MODEL, "--data", "folder:pictures"), "1.png: no plain file")


def test_a_class_folder_that_cannot_be_read(run, place, monkeypatch):
    images(place / "pictures")
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("pictures/b"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    refused(run("measure", MODEL, "--data", "folder:pictures"), "pictures/b: cannot be read: Permission denied")


def test_an_image_of_another_size_is_refused_by_its_head(run, place, monkeypatch):
    Image.new("L", (9000, 9000)).save(images(place / "pictures") / "b" / "1.png")
    monkeypatch.setattr("PIL.Image.Image.load", lambda image: pytest.fail("unpacked") if image.width > 8 else None)
    refused(run("measure", MODEL, "--data", "folder:pictures"), "9000×9000 pixels, expected 8×8")


def test_idx_files_are_unpacked_no_further_than_they_say(tmp_path):
    path = tmp_path / "x.gz"
    for shape, size, words in (
        ((2, 3, 4), 1 << 22, "more than 40 bytes, expected 40 for shape"),
        ((2, 3, 4), 23, "39 bytes, expected 40 for shape"),
        ((1 << 22, 28, 28), 100, "says 3,288,334,336 bytes, more than any such data set; not unpacked"),
        ((0, 28, 28), 0, "holds nothing"),
    ):
        head = b"\0\0\x08" + bytes([len(shape)]) + np.array(shape, ">u4").tobytes()
        path.write_bytes(gzip.compress(head + bytes(size)))
        with pytest.raises(DataError, match=words):
            read_idx(path)


# Weights


@pytest.mark.parametrize("name", ["w.txt", "w.pt", "w.safetensors"])
def test_weights_that_are_none(run, place, name):
    (place / name).write_text("not weights at all\n")
    refused(run("measure", MODEL, "--data", "npz:x.npz", "--weights", name), name)


def test_damaged_weights(run, place):
    torch.save({"a": torch.zeros(3)}, place / "w.pt")
    whole = (place / "w.pt").read_bytes()
    for at in range(0, len(whole), 97):
        (place / "w.pt").write_bytes(whole[:at] + b"x" * 20 + whole[at + 20 :])
        refused(run("measure", MODEL, "--data", "npz:x.npz", "--weights", "w.pt"), "w.pt")


# Campaigns


@pytest.fixture
def campaign(place):
    source = os.path.join(os.path.dirname(__file__), "..", "golden", "schema-2", "images")
    return shutil.copytree(source, place / "c")


@pytest.mark.parametrize(
    "content", ["[]", "null", "3", '"x"', '{"schema":2,"notes":[]}', '{"schema":2,"notes":{"order":3}}']
)
@pytest.mark.parametrize("command", [["show", "c"], ["resume", "c", MODEL], ["replay", "c", MODEL], ["quality", "c"]])
def test_a_configuration_that_is_none(run, campaign, content, command):
    (campaign / "config.json").write_text(content)
    refused(run("fuzz", *command), "config.json: damaged")


@pytest.mark.parametrize("order", [{}, {"model": 3, "data": "x"}, {"model": "a:b", "data": "c:d", "criteria": [1]}])
def test_names_that_are_none(run, campaign, order):
    config = json.loads((campaign / "config.json").read_text())
    config["notes"] = {"order": order}
    (campaign / "config.json").write_text(json.dumps(config))
    refused(run("fuzz", "replay", "c", MODEL), "config.json: damaged")


@pytest.mark.parametrize("change", [lambda c: c["checks"].append({}), lambda c: c["mutations"][1].update(name=[])])
def test_checks_and_mutations_that_are_no_names(run, campaign, change):
    config = json.loads((campaign / "config.json").read_text())
    change(config)
    (campaign / "config.json").write_text(json.dumps(config))
    refused(run("fuzz", "show", "c"), "configuration, seeds and log do not go together")


def test_a_bad_line_of_figures(run, campaign):
    path = campaign / "stats.jsonl"
    path.write_bytes(b"{bad}\n" + path.read_bytes())
    refused(run("fuzz", "show", "c"), "stats.jsonl: line 1 is damaged; remove that line")
    path.write_bytes(b'{"seconds": 1}\n')
    refused(run("fuzz", "show", "c"), "stats.jsonl: the last line is damaged")


def test_files_of_others_among_the_states(run, campaign):
    shutil.copy(next((campaign / "coverage").glob("*.ncov")), campaign / "coverage" / "backup.ncov")
    assert run("fuzz", "show", "c")[0] == 0
    from neuralcov.fuzz.campaign.folder import CampaignFolder

    assert CampaignFolder(campaign).latest_coverage()[1].name != "backup.ncov"


# Options


@pytest.mark.parametrize("option", ["--save", "--json", "--evidence", "--per-input", "--save-calibration"])
def test_what_cannot_be_written_is_noticed_before_anything_runs(run, place, option):
    name = {"--save": "x.ncov", "--per-input": "x.csv", "--save-calibration": "x.ncal"}.get(option, "x.json")
    for target in (f"own_bad.py/{name}", f"/proc/none/{name}"):
        arguments = ["measure", MODEL, "--data", "npz:x.npz", "--calibrate", "npz:x.npz", option, target]
        refused(run(*arguments), "cannot be written")
    assert not (place / "ran").exists()
    assert run("measure", MODEL, "--data", "npz:x.npz", "-c", "nc", "--json", "new/x.json")[0] == 0
    assert [path.name for path in (place / "new").iterdir()] == ["x.json"]


@pytest.mark.parametrize("option", ["--save", "--json", "--evidence"])
def test_an_empty_name(run, place, option):
    refused(run("measure", MODEL, "--data", "npz:x.npz", option, ""), "cannot be written: it is a folder; name a file")


@pytest.mark.parametrize("sections", [10**12, 10**25])
def test_more_cells_than_there_is_memory(run, place, sections):
    arguments = ["measure", MODEL, "--data", "npz:x.npz", "--calibrate", "npz:x.npz", "-c", f"kmnc:{sections}"]
    refused(run(*arguments), "`neuralcov layers MODEL --cost` shows what each takes")


def test_a_device_without_numbers(run, place):
    refused(run("measure", MODEL, "--data", "npz:x.npz", "--device", "meta"), "device 'meta' cannot be used here")


@pytest.mark.parametrize("rate", ["inf", "1e30"])
def test_a_learning_rate_that_leads_nowhere(run, place, rate):
    arguments = ["train", "mlp", "--data", "digits", "-o", "w.safetensors", "--epochs", "3", "--limit", "64"]
    refused(run(*arguments, "--learning-rate", rate), "learning_rate=")
    assert not (place / "w.safetensors").exists()


def test_seeds_beyond_64_bits(run, place):
    arguments = ["train", "mlp", "--data", "digits", "-o", "w.safetensors", "--epochs", "1", "--limit", "64"]
    refused(run(*arguments, "--seed", 99999999999999999999), "seed=99999999999999999999: expected a whole number")
    fuzz = ["fuzz", "run", MODEL, "--data", "npz:x.npz", "-o", "c", "-n", "2"]
    assert run(*fuzz, "--seed", 9999999999999)[0] == 0
    refused(run(*fuzz[:-3], "d", "-n", "2", "--seed", 99999999999999999999), "seed=")


# Memory, and criteria that do not fit


def test_memory_of_the_host_is_no_fault_of_the_model(run, place):
    found = run("fuzz", "run", "own_bad:Huge", "--data", "npz:x.npz", "-o", "c", "-n", 4)
    refused(found, "out of memory with a single input", code=4)


def test_a_criterion_that_can_place_no_input_does_not_block_the_others(run, place):
    labels = np.full(30, 9)
    np.savez(place / "nine.npz", inputs=np.load(place / "x.npz")["inputs"], labels=labels)
    chosen = ["-c", "nc:0.5", "-c", "NLC(classes=2)"]
    code, _, err = run("measure", MODEL, "--data", "npz:nine.npz", *chosen, "--save", "x.ncov", "--json", "x.json")
    assert code == 0, err
    found = json.loads((place / "x.json").read_text())
    assert any("has no value: could place none of 30 inputs" in str(said) for said in found["findings"])
    values = found["values"]
    assert values["NLC(classes=2)"] is None
    assert values["NC(0.5)"] > 0
    code, out, _ = run("show", "x.ncov")
    assert code == 0
    assert "–" in out
    refused(run("measure", MODEL, "--data", "npz:nine.npz", *chosen[2:]), "could place none of 30 inputs")
    assert run("gate", "x.ncov", "--min", "NLC(classes=2)=0")[0] == 1  # no value is above nothing


# Fetching


def test_two_that_fetch_take_turns(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(
        fetching, "_fetch", lambda source, root, place, report: order.append(_locked(root, source.name))
    )
    fetching.fetch("mnist", folder=tmp_path)
    assert order == [True]


def _locked(root, name):
    from neuralcov.core.files import lock_file

    try:
        lock_file(root / f".{name}.lock", wait=False).release()
    except BlockingIOError:
        return True
    return False

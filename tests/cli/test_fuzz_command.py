"""The fuzz commands as a person types them: a campaign from its start to its pictures."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import neuralcov as nc
from neuralcov import demo
from neuralcov.cli.fuzz_setup import absolute_name
from neuralcov.fuzz.campaign.reader import open_campaign


@pytest.fixture(scope="module")
def weights(digits_net, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "digits.safetensors"
    save_file(digits_net.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def campaign(weights, tmp_path_factory):
    """A campaign started in a process of its own."""
    folder = tmp_path_factory.mktemp("campaign") / "c"
    command = [sys.executable, "-m", "neuralcov", "fuzz", "run", "demo:digits", "--weights", str(weights)]
    command += ["--data", "demo:digits", "--seeds", "80", "--wave", "32", "-n", "150", "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done


def test_a_campaign_tells_how_it_goes_and_what_came_of_it(campaign):
    folder, done = campaign
    assert "150 seeds, " in done.stdout
    assert "judged/s" in done.stderr  # plain lines, since there is no terminal
    assert "coverage NLC" in done.stdout
    assert " taken for " in done.stdout
    assert "fewer mutations than before" in done.stdout
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["iterations"] == 150
    assert summary["faults"] > 0
    with Image.open(folder / "faults.png") as sheet:
        assert min(sheet.size) > 100
    stories = list((folder / "faults").glob("*.json"))
    assert stories
    assert all("needed" in json.loads(path.read_text()) for path in stories)


def test_every_saved_fault_is_still_there_and_that_is_a_no(run, campaign, weights):
    folder, _ = campaign
    code, out, _ = run("fuzz", "replay", folder, "demo:digits", "--weights", weights)
    count = json.loads((folder / "summary.json").read_text())["faults"]
    assert code == 1
    assert f"{count} of {count} faults are still there, {count} of them as they were; {count} are made anew" in out
    code, out, _ = run("fuzz", "replay", folder, 0, 2, "--trust")
    assert code == 1
    assert out.count(" is as it was; predicted") == 2
    code, out, _ = run("fuzz", "replay", folder, "demo:digits", 1, "--weights", weights)
    assert code == 1
    assert "1 of 1 fault is still there" in out
    code, _, err = run("fuzz", "replay", folder, count, "--trust")
    assert code == 2
    assert f"fault {count}: the campaign has {count} faults, numbered from 0" in err


def test_a_model_that_was_mended_gives_exit_code_0(run, campaign, digits_net, tmp_path, monkeypatch):
    """Mended: a model that knows the saved faults by heart; the reference is plain PyTorch."""
    folder, _ = campaign
    faults = open_campaign(folder).faults
    known = torch.stack([fault.input for fault in faults]).float() / 16
    labels = torch.tensor([fault.label for fault in faults])
    torch.manual_seed(1)
    mended = demo.DigitsNet()
    mended.load_state_dict(digits_net.state_dict())
    search = torch.optim.Adam(mended.parameters(), lr=1e-3)
    for _ in range(300):
        search.zero_grad()
        torch.nn.functional.cross_entropy(mended(known), labels).backward()
        search.step()
        with torch.no_grad():
            wrong = mended.eval()(known).argmax(1) != labels
        if not wrong.any():
            break
    assert not wrong.any()
    save_file(mended.state_dict(), tmp_path / "mended.safetensors")
    code, out, err = run("fuzz", "replay", folder, "demo:digits", "--weights", tmp_path / "mended.safetensors")
    assert code == 0, err
    assert f"0 of {len(faults)} faults are still there" in out
    code, out, _ = run("fuzz", "replay", folder, 0, "--weights", tmp_path / "mended.safetensors", "--trust")
    assert code == 0
    assert "fault 0 (misprediction) is mended; " in out


def test_a_fault_that_is_taken_for_another_class_is_still_there(run, campaign, tmp_path):
    folder, _ = campaign
    faults = open_campaign(folder).faults
    always = demo.DigitsNet()
    with torch.no_grad():
        always.fc2.weight.zero_()
        always.fc2.bias.zero_()
        always.fc2.bias[faults[0].label] = 1.0
    save_file(always.state_dict(), tmp_path / "always.safetensors")
    code, out, _ = run("fuzz", "replay", folder, "demo:digits", "--weights", tmp_path / "always.safetensors")
    wrong = sum(fault.label != faults[0].label for fault in faults)
    assert code == 1
    assert f"{wrong} of {len(faults)} faults are still there" in out


def test_show_export_shrink_and_quality_need_little(run, campaign, tmp_path):
    folder, _ = campaign
    code, out, _ = run("fuzz", "show", folder)
    assert code == 0
    assert "demo:digits on demo:digits, 80 seeds: 150 searched in" in out
    code, out, _ = run("fuzz", "show", folder, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    saved = open_campaign(folder).faults
    assert (code, "the page is" in out) == (0, True)
    assert f"{len(saved):,} are saved" in page
    assert page.count("data:image/png") == 2 * min(32, len(saved))
    sizes = Counter(fault.group for fault in saved)
    largest = max(sizes.values())
    for group in (group for group, size in sizes.items() if size == largest):
        assert f"{group[1]} taken for {group[2]}" in page
    section = page.split('id="groups"')[1].split("</section>")[0]
    listed = re.findall(r'data-label="Faults"[^>]*>([\d,]+)<', section)
    told = re.search(r"And ([\d,]+) smaller groups, of ([\d,]+) faults", section)
    rest = (0, 0) if told is None else tuple(int(number.replace(",", "")) for number in told.groups())
    assert len(sizes) == len(listed) + rest[0]
    assert len(saved) == sum(int(size.replace(",", "")) for size in listed) + rest[1]
    alone = sum(len({step.mutation for step in fault.steps}) == 1 for fault in saved)
    cells = re.findall(r'data-label="Alone"[^>]*>([\d,]+)<', page)
    assert sum(int(cell.replace(",", "")) for cell in cells) == alone
    code, out, _ = run("fuzz", "export", folder, "-o", tmp_path, "--what", "queue", "--what", "faults", "--limit", 5)
    assert code == 0
    assert f"5 kept mutants written to {tmp_path / 'queue'}" in out
    assert len(list((tmp_path / "queue").glob("*.png"))) == len(list((tmp_path / "faults").glob("*.png"))) == 5
    sheet = (folder / "faults.png").read_bytes()
    code, out, _ = run("fuzz", "shrink", folder, 0, 1, "--trust")
    assert code == 0
    assert "of 2 faults need fewer mutations" in out
    assert (folder / "faults.png").read_bytes() == sheet  # of all faults, not of these two
    (folder / "faults.png").unlink()
    code, out, _ = run("fuzz", "shrink", folder, "--trust")
    assert code == 0
    assert "some are drawn in" in out
    assert (folder / "faults.png").is_file()
    code, out, _ = run("fuzz", "quality", folder, "--json", tmp_path / "q.json")
    assert code == 0
    found = json.loads((tmp_path / "q.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    assert found["faults / outputs"] == summary["faulty_kept"] / summary["kept"]
    assert (found["classes reached"], found["scaled entropy"]) == (summary["classes"], summary["entropy"])


def test_faults_that_are_no_outputs_are_not_among_them(run, tmp_path):
    class Nan(torch.nn.Sequential):
        def forward(self, images):
            return super().forward(images).masked_fill((images.flatten(1).mean(1) > 0.5)[:, None], torch.nan)

    torch.manual_seed(0)
    model = Nan(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    seeds = 0.5 * torch.rand(20, 1, 8, 8)
    coverage = nc.Coverage(model, [nc.NLC()])
    found = nc.Fuzzer(coverage, seeds, folder=tmp_path / "c", wave=8, guide="coverage").run(iterations=40)
    broken = [fault for fault in found.faults if fault.fault_types == ("not finite",)]
    assert broken
    code, _, _ = run("fuzz", "quality", tmp_path / "c", "--json", tmp_path / "q.json")
    assert code == 0
    told = json.loads((tmp_path / "q.json").read_text())
    assert told["faults"] == len(found.faults)
    assert told["faults among outputs"] == sum(fault.entry is not None for fault in found.faults)
    assert told["mutants misread"] == found.stats.faulty >= len(found.faults)
    assert told["faults / outputs"] == told["faults among outputs"] / found.outputs
    assert told["classes reached"] == len({fault.after for fault in found.faults} - {None})


def test_quality_with_any_network(run, campaign, tmp_path, monkeypatch):
    folder, _ = campaign
    (tmp_path / "flat_features.py").write_text("from torch import nn\ndef make():\n    return nn.Flatten()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code, _, _ = run("fuzz", "quality", folder, "--features", "flat_features:make", "--limit", 20, "--json", "q.json")
    assert code == 0
    found = json.loads((tmp_path / "q.json").read_text())
    assert found["images"] == 20
    assert found["references"] == 80
    assert found["frechet_distance"] > 0
    assert found["inception_score"] >= 1


def test_going_on(run, campaign, tmp_path):
    folder, _ = campaign
    target = tmp_path / "c"
    shutil.copytree(folder, target)
    code, out, _ = run("fuzz", "resume", target, "-n", 170, "--no-shrink", "--fail-on-faults", "--trust")
    assert code == 1  # there are faults, and that was asked for
    assert "170 seeds, " in out


def test_a_last_wave_that_is_damaged_is_said(run, campaign, tmp_path):
    """The log takes it for one that a kill cut short: figures are then of one wave fewer."""
    target = tmp_path / "c"
    shutil.copytree(campaign[0], target)
    content = bytearray((target / "queue.log").read_bytes())
    content[-1] ^= 1
    (target / "queue.log").write_bytes(bytes(content))
    code, _, err = run("fuzz", "show", target)
    assert (code, "bytes are no whole wave and were left out" in " ".join(err.split())) == (0, True)
    code, _, err = run("fuzz", "resume", target, "-n", 170, "--no-shrink", "--trust")
    # The finished campaign's coverage has seen that wave.
    assert (code, "ends after" in err) == (2, True)
    shutil.rmtree(target / "coverage")
    code, _, err = run("fuzz", "resume", target, "-n", 170, "--no-shrink", "--trust")
    assert (code, "bytes were no whole wave and were cut off" in " ".join(err.split())) == (0, True), err
    assert "no whole wave" not in run("fuzz", "show", target)[2]


def test_weights_that_were_overwritten_are_noticed(run, campaign, digits_net, tmp_path):
    folder, _ = campaign
    target, weights = tmp_path / "c", tmp_path / "digits.safetensors"
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    config["notes"]["order"]["weights"] = str(weights)
    (target / "config.json").write_text(json.dumps(config))
    save_file(digits_net.state_dict(), weights)
    code, _, err = run("fuzz", "resume", target, "-n", 160, "--no-shrink", "--trust")
    assert code == 0, err
    torch.manual_seed(1)
    save_file(demo.DigitsNet().state_dict(), weights)
    code, _, err = run("fuzz", "resume", target, "-n", 170, "--no-shrink", "--trust")
    assert code == 2
    assert "ran on other weights of the model" in err.replace("\n", " ")


def test_going_on_from_another_folder(run, weights, tmp_path, monkeypatch):
    digits = demo.digits("test").take(slice(0, 30))
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    np.savez(tmp_path / "here" / "d.npz", inputs=digits.inputs.numpy() * 15, labels=digits.labels.numpy())
    monkeypatch.chdir(tmp_path / "here")
    code, _, err = run(
        "fuzz", "run", "demo:digits", "--weights", weights, "--data", "npz:d.npz", "--calibrate", "npz:d.npz",
        "-c", "nbc", "--against", "demo:digits", "--against-weights", weights, "-n", 10, "--wave", 8,
        "-o", tmp_path / "c",
    )  # fmt: skip
    assert code == 0, err
    monkeypatch.chdir(tmp_path / "there")
    code, out, err = run("fuzz", "resume", tmp_path / "c", "-n", 15, "--trust")
    assert code == 0, err
    assert "15 seeds, " in out


def test_paths_that_are_named_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("data", "a (copy).npz", "c.ncal"):
        (tmp_path / name).touch()
    assert absolute_name("folder:data") == f"folder:{tmp_path}/data"
    assert absolute_name("npz:a (copy).npz") == f"npz:{tmp_path}/a (copy).npz"
    assert absolute_name("hf:data(num_labels=3)") == f"hf:{tmp_path}/data(num_labels=3)"
    assert absolute_name("zoo:cifar10(folder='data'):train") == f"zoo:cifar10(folder='{tmp_path}/data'):train"
    assert absolute_name("c.ncal") == f"{tmp_path}/c.ncal"
    for name in (
        "demo:digits:train",
        "zoo:resnet50(classes=3)",
        "hf:somebody/bert",
        "package.module:factory",
        "shipped",
    ):
        assert absolute_name(name) == name


def test_other_ways_to_start(run, weights, tmp_path):
    base = ["fuzz", "run", "demo:digits", "--weights", weights, "--data", "demo:digits", "--seeds", 30, "-n", 20]
    code, out, err = run(
        *base, "-o", tmp_path / "a", "-c", "lvc", "-c", "nc:0.9", "--calibrate", "demo:digits", "--wave", 8,
        "--mutations", "contrast,rotation", "--schedule", "fresh", "--against", "demo:digits",
        "--against-weights", weights, "--no-shrink",
    )  # fmt: skip
    assert code == 0, err
    assert "coverage LVC" in out
    assert (tmp_path / "a" / "calibration.ncal").is_file()
    code, out, err = run("fuzz", "resume", tmp_path / "a", "-n", 25, "--no-shrink", "--trust")
    assert code == 0, err
    code, out, _ = run(*base, "-o", tmp_path / "b", "--guide", "random", "--no-shrink")
    assert code == 0
    assert "20 kept (100.0% of judged)" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mutations", "melt"], "mutation 'melt': for this data there are contrast, brightness"),
        (["-c", "lvc"], "LVC needs calibration"),
        (["--mean", "a"], "expected numbers separated by commas"),
        (["--alpha", "3"], "alpha=3.0: expected a share from 0 to 1"),
    ],
)
def test_mistakes_end_in_one_sentence(run, weights, tmp_path, arguments, message):
    base = ["fuzz", "run", "demo:digits", "--weights", weights, "--data", "demo:digits", "-n", 5, "-o", tmp_path / "c"]
    code, _, err = run(*base, *arguments)
    assert code == 2
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err


def test_places_that_cannot_be_written(run, campaign, weights, tmp_path):
    folder, _ = campaign
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "below"
    start = ["fuzz", "run", "demo:digits", "--weights", weights, "--data", "demo:digits", "-n", 5, "-o"]
    for command in (
        [*start, below],
        [*start, tmp_path / "file"],
        ["fuzz", "export", folder, "-o", below],
        ["fuzz", "quality", folder, "--json", below],
        ["fuzz", "quality", folder, "--json", tmp_path],
    ):
        code, _, err = run(*command)
        assert code == 2, command
        assert "cannot be written: " in err
        assert "make it writable or name another place" in err.replace("\n", " ")
    code, _, _ = run("fuzz", "quality", folder, "--json", tmp_path / "new" / "q.json")
    assert code == 0
    assert (tmp_path / "new" / "q.json").is_file()


def test_folders_that_hold_something_else(run, campaign, weights, tmp_path):
    folder, _ = campaign
    code, _, err = run(
        "fuzz", "run", "demo:digits", "--weights", weights, "--data", "demo:digits", "-n", 5, "-o", folder
    )
    assert code == 2
    assert "holds a campaign already" in err.replace("\n", " ")
    code, _, err = run("fuzz", "show", tmp_path)
    assert code == 2
    assert "no campaign has begun here" in err.replace("\n", " ")

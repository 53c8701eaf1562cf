"""What measure is given: data, scaling, names in files, criteria of one's own."""

import json
import re
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import neuralcov as nc
from neuralcov import demo


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"inputs": np.zeros((4, 1, 8, 8)), "labels": np.zeros(3, int)},
            "labels of type int64 and shape (3,): expected 4",
        ),
        ({"inputs": np.zeros((4, 1, 8, 8)), "labels": np.zeros(4)}, "labels of type float64"),
        ({"inputs": np.zeros((4, 1, 8, 8)), "labels": np.zeros((4, 10), int)}, "and shape (4, 10)"),
        ({"inputs": np.array(["a", "b"])}, "inputs of type <U1"),
        ({"inputs": np.zeros((4, 3, 9, 9))}, "the model failed with RuntimeError"),
    ],
)
def test_data_that_does_not_fit(run, tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    code, _, err = run("measure", "demo:digits", "--data", f"npz:{tmp_path / 'x.npz'}", "-c", "nc")
    assert code == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("dtype", ["u1", "f2", "u2", ">f4", "f8"])
def test_numbers_of_any_type_are_read(run, tmp_path, dtype):
    images = (demo.digits("test").pixels()[:9].numpy() * 16).astype(dtype)
    np.savez(tmp_path / "x.npz", inputs=images)
    code, out, _ = run("measure", "demo:digits", "--data", f"npz:{tmp_path / 'x.npz'}", "-c", "nc")
    assert code == 0
    assert "9 inputs" in " ".join(out.split())


def test_names_in_a_file_stand_beside_results(run, tmp_path):
    test = demo.digits("test")
    images, count = test.pixels().numpy().copy(), len(test)
    images[5] = np.nan
    weather = np.array(["rain", "sun", "sun"])[np.arange(count) % 3]
    ids = np.array([f"{number}.png" for number in range(count)])
    np.savez(tmp_path / "x.npz", x=images, y=test.labels.numpy(), id=ids, weather=weather, camera=np.arange(count) % 2)
    code, out, err = run(
        "measure", "demo:digits", "--data", f"npz:{tmp_path / 'x.npz'}",
        "-c", "nc:0.5", "-c", "tknc", "-c", "tknp", "-c", "cc", "--slices", "weather,class",
        "--per-input", tmp_path / "t.csv", "--json", tmp_path / "a.json", "--save", tmp_path / "a.ncov",
    )  # fmt: skip
    assert code == 0, err
    assert "1 input with NaN or infinite outputs was left out (inputs 5.png)" in err
    assert err.count("CC(10): what a slice adds to the others is not told") == 1
    assert "by weather: alone, and lost without it" in out
    lines = (tmp_path / "t.csv").read_text().splitlines()
    columns = "id,key,weather,camera,label,prediction,excluded,NC(0.5).first,TKNC(10).first,TKNP(10).first"
    assert lines[0] == columns
    assert re.match(f"5.png,[0-9a-f]{{32}},sun,1,{test.labels[5]},", lines[6])
    assert "NaN or infinite outputs,0,0,0" in lines[6]
    assert len(lines) == count + 1
    by_weather, by_class = json.loads((tmp_path / "a.json").read_text())["slices"]
    assert [row["inputs"] for row in by_weather["rows"]] == [199, 398]
    assert len(by_class["rows"]) == 10
    assert nc.Coverage.load(tmp_path / "a.ncov").results().to_json()["slices"] == [by_weather, by_class]
    again = ["measure", "demo:digits", "--data", "demo:digits", "-c", "nc"]
    code, _, err = run(*again, "--per-input", tmp_path / "t.xlsx")
    assert code == 2
    assert ".csv or .jsonl" in err
    code, _, err = run(*again, "--slices", "weather")
    assert code == 2
    assert "slices by 'weather': the batches have no such column, but class" in err


def test_outputs_that_cannot_be_written_and_factories_that_fail(run, tmp_path, monkeypatch):
    (tmp_path / "afile").write_text("")
    (tmp_path / "mine2.py").write_text("def make(width):\n    raise ValueError('no width will do')\n")
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (
            ["measure", "demo:digits", "--data", "demo:digits", "-c", "nc", "--json", "afile/y.json"],
            "afile/y.json: cannot be written: File exists",
        ),
        (["layers", "mine2:make(width=4)"], "cannot be built: ValueError: no width will do"),
        (["layers", "mine2:make"], "cannot be built: TypeError"),
        (
            ["measure", "demo:digits", "--data", "demo:digits", "--save-calibration", "x.ncal"],
            "give --calibrate as well",
        ),
    ):
        code, _, err = run(*arguments)
        assert code == 2, arguments
        assert message in err
        assert "Traceback" not in err


def test_a_criterion_of_ones_own_in_the_models_module(run, tmp_path, monkeypatch):
    (tmp_path / "mine3.py").write_text(
        "from dataclasses import dataclass\nimport neuralcov as nc\nfrom neuralcov import demo\n"
        "@dataclass(frozen=True, eq=False)\nclass Mine3(nc.NC):\n    pass\n"
        "def make():\n    return demo.DigitsNet()\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("measure", "mine3:make", "--data", "demo:digits", "-c", "mine3:0.5")
    assert code == 0
    assert "Mine3(0.5)" in out


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_images_are_scaled_as_the_network_wants_them(run, tmp_path, form):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())
    torch.save(model.state_dict(), tmp_path / "net.pt")
    (tmp_path / "mine4.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())\n"
    )
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 5, 5), dtype=np.uint8)
    for label in (0, 1):
        (tmp_path / "images" / str(label)).mkdir(parents=True)
        for number in range(3):
            picture = Image.fromarray(images[3 * label + number].transpose(1, 2, 0))
            picture.save(tmp_path / "images" / str(label) / f"{number}.png")
    np.savez(tmp_path / "x.npz", inputs=images, labels=np.array([0, 0, 0, 1, 1, 1]))
    data = f"folder:{tmp_path / 'images'}" if form == "folder" else f"npz:{tmp_path / 'x.npz'}"
    sys.path.insert(0, str(tmp_path))
    arguments = ["mine4:make", "--weights", tmp_path / "net.pt", "--data", data, "-c", "nlc"]
    code, _, err = run(
        "measure", *arguments, "--mean", "0.5,0.4,0.3", "--std", "0.2,0.3,0.4", "--json", tmp_path / "a.json"
    )
    sys.path.remove(str(tmp_path))
    assert code == 0, err
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in ((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)))
    coverage = nc.Coverage(model, [nc.NLC()])
    coverage.update((torch.from_numpy(images) / 255 - mean) / std)
    assert json.loads((tmp_path / "a.json").read_text())["values"]["NLC"] == pytest.approx(coverage.values()["NLC"])


def test_scaling_is_for_images(run):
    for arguments, message in (
        (["--mean", "0.5"], "1 means and 0 deviations"),
        (["--mean", "0.5", "--std", "0.5"], "--mean and --std are for images"),
    ):
        code, _, err = run("measure", "demo:digits", "--data", "demo:digits", *arguments)
        assert code == 2
        assert message in err


def test_gains_stand_in_the_table_of_inputs_on_request(run, tmp_path):
    asked = "measure", "demo:digits", "--data", "demo:digits:test", "-c", "nlc", "-c", "nc:0.5"
    code, _, err = run(*asked, "--per-input", tmp_path / "t.csv", "--gains", "nlc")
    assert code == 0, err
    head, *rows = (tmp_path / "t.csv").read_text().splitlines()
    assert head.split(",")[-2:] == ["NLC.gain", "NC(0.5).first"]
    assert len(rows) == 597
    assert all(float(row.split(",")[-2]) >= 0 for row in rows)
    code, _, err = run(*asked, "--gains", "nlc")
    assert (code, "give --per-input FILE as well" in " ".join(err.split())) == (2, True)
    code, _, err = run(*asked, "--per-input", tmp_path / "t.csv", "--gains", "ss")
    assert (code, "gains: there is no criterion 'SS'; there are NLC, NC(0.5)" in " ".join(err.split())) == (2, True)

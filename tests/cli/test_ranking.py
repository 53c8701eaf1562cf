"""The commands rank, select and minimise as a person types them."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import neuralcov as nc
from neuralcov import demo


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Return the options that name a network, data and training data, and the network."""
    folder = tmp_path_factory.mktemp("digits")
    net = demo.train_digits(epochs=1, progress=False)
    save_file(net.state_dict(), folder / "net.safetensors")
    return ["demo:digits", "--weights", folder / "net.safetensors", "--data", "demo:digits"], net


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rank_writes_and_shows_a_queue(run, digits, tmp_path):
    options, net = digits
    code, out, err = run(
        "rank", *options, "--calibrate", "demo:digits", "-o", tmp_path / "queue.csv", "--show", 3,
        "--work", tmp_path / "work",
    )  # fmt: skip
    assert code == 0, err
    assert "597 inputs of digits test, most suspicious first" in out
    coverage = nc.Coverage(net, [nc.DSC()])
    coverage.calibrate(demo.digits("train").batches(100))
    queue = nc.rank(coverage, demo.digits("test").batches(100), classes=demo.digits("test").classes)
    rows = read(tmp_path / "queue.csv")
    assert [int(row["id"]) for row in rows] == queue.positions
    assert [row["why"] for row in rows] == [row.why for row in queue]
    assert queue[2].why in out
    shown = [line.split("│")[1:4] for line in out.splitlines() if line.count("│") == 5]
    assert [(int(rank), int(name)) for rank, name, _ in shown if rank.strip()] == [
        (place + 1, int(row.id)) for place, row in enumerate(queue[:3])
    ]
    again, _, _ = run(
        "rank", *options, "--calibrate", "demo:digits", "-o", tmp_path / "b.csv", "--work", tmp_path / "work"
    )
    assert again == 0
    assert read(tmp_path / "b.csv") == rows


def test_states_rank_without_looking_at_answers(run, digits, tmp_path):
    options, net = digits
    for command in (["rank"], ["select", "--budget", 9]):
        code, _, err = run(
            *command, *options, "--calibrate", "demo:digits", "-o", tmp_path / "queue.csv", "--show", 0, "--states"
        )
        assert code == 0, err
        found = [int(row["id"]) for row in read(tmp_path / "queue.csv")]
        coverage, pool = nc.Coverage(net, [nc.DSC(), nc.LCC()]), demo.digits("test").batches(100)
        given = {"training": demo.digits("train").batches(100), "states": True}
        queue = nc.rank(coverage, pool, **given) if command == ["rank"] else nc.select(coverage, pool, 9, **given)
        assert found == queue.positions


def test_rank_writes_a_page_of_the_first_64_with_reasons(run, digits, tmp_path):
    options, _ = digits
    code, _, err = run(
        "rank", *options, "--calibrate", "demo:digits", "-o", tmp_path / "queue.csv", "--page", tmp_path / "queue.html",
        "--show", 0,
    )  # fmt: skip
    assert code == 0, err
    page = (tmp_path / "queue.html").read_text(encoding="utf-8")
    rows = read(tmp_path / "queue.csv")
    assert page.count("data:image/png") == 64
    assert "597 inputs of digits test, most suspicious first" in page
    for row in rows[:64]:
        assert f"<b>{row['rank']}: {row['id']}</b>" in page
        assert row["why"] in page
    assert f"<b>65: {rows[64]['id']}</b>" not in page
    assert "default-src &#39;none&#39;" in page
    code, _, err = run(
        "select", *options, "--calibrate", "demo:digits", "--budget", 5, "--page", tmp_path / "few.html", "--show", 0
    )
    assert code == 0, err
    assert (tmp_path / "few.html").read_text(encoding="utf-8").count("data:image/png") == 5


def test_rank_with_a_saved_calibration_and_labels(run, digits, tmp_path):
    options, net = digits
    coverage = nc.Coverage(net, [nc.DSC(), nc.LCC()])
    coverage.calibrate(demo.digits("train").batches(100))
    coverage.save_calibration(tmp_path / "train.ncal")
    truth = demo.digits("test").labels.tolist()
    (tmp_path / "labels.csv").write_text("id,label\n" + "".join(f"{row},{truth[row]}\n" for row in range(200)))
    code, out, err = run(
        "rank", *options, "--calibrate", tmp_path / "train.ncal", "--labels", tmp_path / "labels.csv",
        "-o", tmp_path / "queue.jsonl", "--show", 0,
    )  # fmt: skip
    assert code == 0, err
    assert not out
    assert "learnt from 200 labelled inputs" in err
    assert "weights: gini" in err
    rows = [json.loads(line) for line in (tmp_path / "queue.jsonl").read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == list(range(200, 597))


def test_select_from_a_folder_names_files(run, tmp_path, monkeypatch):
    images = demo.digits("test").inputs[:30].repeat(1, 3, 1, 1)
    for number, image in enumerate(images):
        place = tmp_path / "images" / "zero" / f"{number:02}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.moveaxis(image.numpy(), 0, 2)).save(place)
    (tmp_path / "own_net.py").write_text(
        "import torch\nfrom torch.nn import Flatten, Linear, ReLU, Sequential\ndef make():\n"
        "    torch.manual_seed(0)\n    return Sequential(Flatten(), Linear(192, 9), ReLU(), Linear(9, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, err = run(
        "select", "own_net:make", "--data", "folder:images", "--calibrate", "folder:images", "--budget", 4,
        "-o", tmp_path / "four.csv",
    )  # fmt: skip
    assert code == 0, err
    rows = read(tmp_path / "four.csv")
    assert len(rows) == 4
    assert all(row["path"] == f"images/{row['id']}" for row in rows)
    assert "4 inputs of folder:images to label" in out
    assert rows[0]["id"] in out


def test_minimise_says_what_it_kept(run, digits, tmp_path):
    options, net = digits
    code, out, err = run(
        "minimise", *options, "-c", "kmnc:20", "-c", "nc:0.75", "--calibrate", "demo:digits", "--keep", 0.9,
        "-o", tmp_path / "few.csv", "--show", 2,
    )  # fmt: skip
    assert code == 0, err
    rows = read(tmp_path / "few.csv")
    assert f"{len(rows)} of 597 inputs of digits test to keep" in out
    assert "of the inputs keep as much" in out
    coverage = nc.Coverage(net, [nc.KMNC(20), nc.NC(0.75)])
    coverage.calibrate(demo.digits("train").batches(100))
    test = demo.digits("test")
    coverage.assess(test.batches(100))
    whole = coverage.values()
    coverage.reset()
    coverage.update(test.pixels(torch.tensor([int(row["id"]) for row in rows])))
    assert all(coverage.values()[name] >= 0.9 * whole[name] for name in whole)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("rank",), "give --calibrate: training data, or a saved calibration (.ncal)"),
        (("rank", "--calibrate", "demo:digits", "-o", "queue.txt"), "ends in .csv or .jsonl"),
        (("rank", "--calibrate", "demo:digits", "--pool", "tokens"), "inputs are ranked, selected and kept whole"),
        (("minimise", "-c", "nlc"), "NLC is not submodular"),
        (("minimise", "-c", "nc", "--keep", "2"), "keep=2.0: expected a share above 0 and at most 1"),
    ],
)
def test_mistakes_end_in_one_sentence(run, digits, more, sentence):
    code, _, err = run(more[0], *digits[0], *more[1:])
    assert code == 2
    assert sentence in err.replace("\n", " ")


@pytest.mark.parametrize("option", ["-o", "--page"])
def test_places_are_tried_before_anything_is_ranked(run, digits, tmp_path, option):
    """A queue that took hours is not lost to a place that nothing can be written to."""
    options, _ = digits
    (tmp_path / "nowhere").write_text("a file, no folder")
    where = tmp_path / "nowhere" / ("queue.csv" if option == "-o" else "queue.html")
    work = tmp_path / "queue.work"
    code, _, said = run("rank", *options, "--calibrate", "demo:digits", "--work", work, option, where)
    assert code != 0
    assert "nowhere" in said
    assert not work.exists()

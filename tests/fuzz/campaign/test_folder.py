"""What lies in a campaign's folder: figures, faults a person can open, and what is exported from it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import neuralcov as nc
from neuralcov.core.errors import CampaignError, InputError
from neuralcov.fuzz import Brightness, mutation
from neuralcov.fuzz.campaign.reader import open_campaign
from neuralcov.fuzz.campaign.result import Stats
from neuralcov.fuzz.campaign.screen import LineView, LiveView, ProgressView, line_of, table_of, view_for
from neuralcov.fuzz.campaign.writer import save_shrunk
from neuralcov.fuzz.faults.pictures import fault_sheet, pick_from_groups, save_input, sheet
from neuralcov.fuzz.formats import Pixels
from neuralcov.fuzz.limits import Timer
from tests.fuzz.support import fuzzer_of


@pytest.fixture(scope="module")
def campaign(net, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("campaigns") / "digits"
    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=folder, pictures=2, checkpoint=0.0)
    return fuzzer, fuzzer.run(iterations=150)


def pixels_of(path):
    return np.asarray(Image.open(path))


def test_what_lies_where(campaign):
    _, found = campaign
    names = {path.name for path in found.folder.iterdir()}
    assert names == {
        "config.json", "seeds.safetensors", "queue.log", "coverage", "faults", "stats.jsonl", "summary.json", "lock"
    }  # fmt: skip
    config = json.loads((found.folder / "config.json").read_text())
    assert config["limits"] == {"iterations": 150, "seconds": None, "faults": None, "until_new": None, "calls": None}
    assert config["criteria"] == ["NLC"]
    assert [entry["name"] for entry in config["mutations"]][:2] == ["contrast", "brightness"]
    assert config["machine"]["torch"] == torch.__version__
    assert len(list((found.folder / "coverage").iterdir())) == 1
    loaded = nc.Coverage.load(next((found.folder / "coverage").iterdir()))
    assert loaded.values() == dict(found.values)


def test_figures_only_ever_grow(campaign):
    _, found = campaign
    lines = [json.loads(line) for line in (found.folder / "stats.jsonl").read_text().splitlines()]
    assert Stats(**lines[-1]) == found.stats
    for name in ("seconds", "waves", "iterations", "candidates", "valid", "judged", "kept", "faults", "queue"):
        numbers = [line[name] for line in lines]
        assert numbers == sorted(numbers), name
    summary = json.loads((found.folder / "summary.json").read_text())
    assert sum(group[-1] for group in summary["groups"]) == summary["faults"] == len(found.faults)
    assert summary["candidates per second"] == found.stats.judged / found.stats.seconds


def test_faults_lie_as_pictures_with_their_story(campaign, digits):
    _, found = campaign
    for group, faults in found.groups().items():
        saved = [fault for fault in faults if (found.folder / "faults" / f"{fault.stem}.json").is_file()]
        assert saved == faults[:2], group
        for fault in saved:
            story = json.loads((found.folder / "faults" / f"{fault.stem}.json").read_text())
            picture = pixels_of(found.folder / "faults" / story["file"])
            # A digit has 17 levels: the picture spreads them over 256.
            assert picture.tolist() == (fault.input[0] / 16 * 255).round().byte().tolist()
            assert (story["root"], story["label"]) == (fault.root, int(digits.labels[fault.root]))
            assert (story["before"], story["after"]) == (fault.before, fault.after)
            assert len(story["mutations"]) == len(story["steps"]) == len(fault.steps)


def test_pictures_of_a_group_count_over_several_runs(net, digits, tmp_path):
    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=tmp_path / "c", pictures=2)
    for iterations in (40, 80, 120, 160):
        found = fuzzer.run(iterations=iterations)
    assert max(map(len, found.groups().values())) > 2
    expected = {f"{fault.stem}.json" for faults in found.groups().values() for fault in faults[:2]}
    assert {path.name for path in (tmp_path / "c" / "faults").glob("*.json")} == expected


def test_a_campaign_is_read_without_its_model(campaign):
    fuzzer, found = campaign
    archive = open_campaign(found.folder)
    assert archive.state.counts == fuzzer.search.state.counts
    assert [fault.stem for fault in archive.faults] == [fault.stem for fault in found.faults]
    told = [fault.to_json(archive.mutations)["mutations"] for fault in archive.faults]
    assert [len(words) for words in told] == [len(fault.steps) for fault in found.faults]
    with pytest.raises(CampaignError, match="'contrast' is known by name only"):
        archive.mutations[0].apply(torch.zeros(1), None)
    with pytest.raises(CampaignError, match="known by name only"):
        archive.mutations[0].choose(np.zeros(1))


def test_everything_can_be_exported(campaign, tmp_path):
    fuzzer, found = campaign
    archive = open_campaign(found.folder)
    counts = {part: archive.export(part, tmp_path) for part in ("faults", "queue", "seeds")}
    assert counts == {"faults": len(found.faults), "queue": found.outputs, "seeds": 60}
    stored = {
        "faults": torch.stack([fault.input for fault in found.faults]),
        "queue": found.inputs,
        "seeds": fuzzer.search.state.corpus.inputs(slice(0, 60)),
    }
    for part, inputs in stored.items():
        index = [json.loads(line) for line in (tmp_path / part / "index.jsonl").read_text().splitlines()]
        assert len(index) == counts[part]
        for entry, image in zip(index, inputs, strict=True):
            picture = pixels_of(tmp_path / part / entry["file"])
            assert picture.tolist() == (image[0] / 16 * 255).round().byte().tolist()
    assert archive.export("queue", tmp_path / "few", limit=3) == 3
    with pytest.raises(InputError, match="export of 'bugs': expected faults, queue, seeds"):
        archive.export("bugs", tmp_path)


def test_eight_bit_pictures_are_the_mutants_to_the_last_bit(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 3))
    seeds = torch.randint(0, 256, (10, 3, 6, 6), dtype=torch.uint8)
    fuzzer = nc.Fuzzer(nc.Coverage(model, [nc.NLC()]), seeds, folder=tmp_path / "c", pictures=None, wave=8)
    found = fuzzer.run(iterations=60)
    assert found.faults
    for fault in found.faults:
        picture = pixels_of(tmp_path / "c" / "faults" / f"{fault.stem}.png")
        assert torch.equal(torch.from_numpy(picture.copy()).permute(2, 0, 1), fault.input)
        with torch.no_grad():
            again = model(torch.from_numpy(picture.copy()).permute(2, 0, 1)[None] / 255)
        assert int(again.argmax()) == fault.after


def test_inputs_that_are_no_pictures(tmp_path):
    noise = mutation(lambda rows, generator: rows + 0.1 * torch.rand(rows.shape, generator=generator), name="noise")
    torch.manual_seed(0)
    coverage = nc.Coverage(nn.Linear(5, 3), [nc.NLC()])
    found = nc.Fuzzer(coverage, torch.rand(8, 5), mutations=[noise], folder=tmp_path / "c", wave=4).run(iterations=40)
    open_campaign(tmp_path / "c").export("queue", tmp_path)
    first = json.loads((tmp_path / "queue" / "index.jsonl").read_text().splitlines()[0])
    assert np.load(tmp_path / "queue" / first["file"]).tolist() == found.inputs[0].tolist()
    assert first["mutations"][0].startswith("noise with key")


def test_smaller_faults_are_saved_beside_the_others(campaign):
    fuzzer, found = campaign
    shrunk = fuzzer.shrink(found.faults)
    smaller = save_shrunk(fuzzer.folder, shrunk, fuzzer.mutations, fuzzer.input_format)
    assert smaller == sum(entry.smaller for entry in shrunk) > 0
    for entry in shrunk:
        story = json.loads((found.folder / "faults" / f"{entry.fault.stem}.json").read_text())
        assert len(story["needed"]) == len(entry.steps)
        assert ("smaller file" in story) == entry.smaller
    page = fault_sheet(
        shrunk[:5], torch.zeros(60, 1, 8, 8), fuzzer.input_format, fuzzer.mutations, classes=list("abcdefghij")
    )
    assert page.mode == "RGB"
    assert page.width > 4 * 128


def test_sheets_and_single_files(tmp_path):
    space = Pixels(255)
    picture = torch.zeros(3, 8, 8, dtype=torch.uint8)
    assert sheet([([picture, picture], "a"), ([picture, picture], "b\nc")], space, title="two").height > 64
    assert sheet([], space) is None
    assert sheet([([torch.zeros(5)], "no picture")], space) is None
    assert save_input(tmp_path, "x", picture, space).suffix == ".png"
    assert save_input(tmp_path, "y", torch.zeros(2, 8, 8), space).suffix == ".npy"
    assert pick_from_groups([], 3) == []


STATS = Stats(
    seconds=75.0, waves=9, iterations=1200, candidates=5000, valid=4000, judged=3900, per_second=1234.5, kept=1000,
    admitted=0.25641, queue=1100, faults=17, classes=4, entropy=0.9, since_kept=0.4, since_fault=3.2,
    distinct=17, roots=9, faulty=30, faulty_kept=5, new_fault_chance=0.0025,
    values={"NLC": 12.5, "LSC(10, by=label)": 7.0}, growth={"NLC": 2.5, "LSC(10, by=label)": 3.0},
)  # fmt: skip


def test_screens_say_how_often_something_is_still_new():
    some = replace(STATS, latest=1000, latest_kept=25)
    said = "one in 40 candidates still shows something new (1.70% to 3.66%, of the last 1,000)"
    assert some.still_new == said
    assert f"; {said}; about one in 400 further mutants" in line_of(some)
    assert (
        replace(some, new_fault_chance=0.0).still_faults == "every fault was seen more than once: new ones are rare now"
    )
    assert replace(some, distinct=0).still_faults is None
    assert (
        replace(some, latest_kept=0).still_new
        == "none of the last 1,000 candidates showed anything new (at most 0.38% do)"
    )
    # Nothing guides, or nothing was judged.
    assert replace(some, values={}).still_new is None
    assert STATS.still_new is None


def test_screens(capsys, monkeypatch):
    from rich.console import Console

    assert line_of(STATS) == (
        "75 s: 1,200 seeds, 5,000 candidates, 1,234 judged/s, 1,000 kept (25.6% of judged), 17 different faults "
        "from 9 seeds in 4 classes, last new one 3 s ago; NLC 12.5 (+2.5), LSC(10, by=label) 7 (+3); about one in 400 "
        "further mutants shows a fault not seen so far"
    )
    console = Console(width=100, force_terminal=False)
    console.print(table_of(STATS))
    shown = capsys.readouterr().out
    for words in ("0:01:15", "1,234", "25.6%", "17", "4, 0.900", "coverage NLC, grown by", "12.5, 2.5", "80.0%"):
        assert words in shown
    lines = LineView(console, every=60)
    for _ in range(3):
        lines.show(STATS)
    lines.show(STATS, last=True)
    assert capsys.readouterr().out.count("17 different faults") == 2
    assert type(view_for(None)) is ProgressView  # there is no terminal here
    assert isinstance(view_for(True), LineView)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert isinstance(view_for(None), LiveView)
    assert type(view_for(False)) is ProgressView
    with LiveView(console) as live:
        live.show(STATS, last=True)
    assert "17" in capsys.readouterr().out


def test_reading_off_coverage_takes_a_small_share_of_the_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("neuralcov.fuzz.limits.time.monotonic", lambda: now[0])
    clock, reads = Timer(60), []

    def read():
        reads.append(now[0])
        now[0] += 1.0
        return {"LVC": 1.0}

    for _ in range(400):
        clock.values(read)
        now[0] += 1.0
    assert len(reads) == 8  # 1 s of 50
    assert clock.time_to_save()
    assert not clock.time_to_save()


def test_without_a_folder_nothing_is_written(net, digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = fuzzer_of(net, digits, [nc.NLC()], mutations=[Brightness([40])], wave=8).run(iterations=10)
    assert found.folder is None
    assert list(tmp_path.iterdir()) == []
    assert repr(found).startswith("Campaign(10 seeds, ")


def test_a_folder_that_cannot_be_made(net, digits, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CampaignError, match=r"cannot be written: .*; make it writable or name another place"):
        fuzzer_of(net, digits, [nc.NLC()], folder=tmp_path / "file" / "below").run(iterations=1)

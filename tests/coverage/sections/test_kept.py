"""What assess keeps of inputs: files hold it, merging joins it, and on request nothing of it is written."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import neuralcov as nc
from neuralcov.core.container import STATE, opened
from neuralcov.coverage.sections.views import ViewStore

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")

CRITERIA = [nc.LCC(), nc.KMNC(10), nc.SNAC(), nc.MDSC(0.1, layers="hidden", by="label")]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.hidden, self.out = nn.Conv2d(1, 3, 3), nn.Linear(3, 6), nn.Linear(6, 3)

    def forward(self, images):
        return self.out(self.hidden(self.conv(images).relu().mean((2, 3))).relu())


def pictures(count, seed):
    return torch.rand(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


def suite(rows, seed=2, names=None):
    inputs = pictures(60, seed)[rows]
    labels = torch.arange(60)[rows] % 3
    ids = [f"<b>{name}</b>.png" for name in (range(60)[rows] if names is None else names)]
    return [nc.Batch(inputs[i : i + 8], labels[i : i + 8], ids=ids[i : i + 8]) for i in range(0, len(inputs), 8)]


@pytest.fixture(scope="module")
def net():
    return Net().eval()


def assessed(net, data, **options):
    found = nc.Coverage(net, CRITERIA)
    found.calibrate([(pictures(300, 1), torch.arange(300) % 3)], progress=False)
    found.assess(data, keep_inputs=True, progress=False, **options)
    return found


def test_a_file_gives_back_every_section(net, tmp_path):
    found = assessed(net, suite(slice(60)), slices=["class"])
    before = found.results()
    for name in ("growth", "neurons", "galleries", "slices"):
        assert getattr(before, name), name
    assert before.map is not None
    assert before.fewer is not None
    found.save(tmp_path / "a.ncov")
    after = nc.Coverage.load(tmp_path / "a.ncov").results()
    assert after.galleries == before.galleries
    assert (after.fewer, after.slices, after.neurons) == (before.fewer, before.slices, before.neurons)
    assert after.growth == before.growth
    assert np.allclose(after.map.suite, before.map.suite)
    assert (after.map.layer, after.map.classes, after.map.wrong) == ("hidden", before.map.classes, before.map.wrong)
    assert list(nc.Coverage.load(tmp_path / "a.ncov").per_input()) == list(found.per_input())


def test_galleries_show_the_inputs_they_name(net):
    found = assessed(net, suite(slice(60)))
    inputs = pictures(60, 2)
    shown = [item for gallery in found.results().galleries for item in gallery.items]
    assert len({item.id for item in shown if item.picture}) <= 64
    for item in shown:
        row = int(item.id.removeprefix("<b>").removesuffix("</b>.png"))
        drawn = np.asarray(Image.open(io.BytesIO(item.picture)))
        assert np.array_equal(drawn, (inputs[row, 0] * 255).round().to(torch.uint8).numpy())
        assert item.label == str(row % 3)
        with torch.no_grad():
            assert item.prediction == str(int(net(inputs[row : row + 1]).argmax()))


def test_the_map_has_the_main_directions_of_training_data(net):
    found = assessed(net, suite(slice(60)))
    drawn = found.results().map
    with torch.no_grad():
        train, tests = (
            net.hidden(net.conv(part).relu().mean((2, 3))).double().numpy()
            for part in (pictures(300, 1), pictures(60, 2))
        )
    distances = np.linalg.norm(train - np.sort(train, 0)[(len(train) - 1) // 2], axis=1)
    ordinary = train[distances <= 3 * np.sort(distances)[(len(train) - 1) // 2]]
    middle = ordinary.mean(0)
    _, spread, directions = np.linalg.svd(ordinary - middle, full_matrices=False)
    assert drawn.explained == pytest.approx((spread**2 / (spread**2).sum())[:2], rel=1e-5)
    for points, values in ((drawn.training, train), (drawn.suite, tests)):
        expected = (values - middle) @ directions[:2].T
        # Directions have no sign.
        assert np.abs(np.asarray(points)) == pytest.approx(np.abs(expected), abs=1e-5)


def test_one_odd_training_input_does_not_decide_the_map(net):
    train = [(torch.cat([pictures(300, 1), torch.full((1, 1, 6, 6), 1e4)]), torch.arange(301) % 3)]
    found = nc.Coverage(net, [nc.KMNC(10)])
    found.calibrate(train, progress=False)
    found.assess(suite(slice(60)), keep_inputs=True, progress=False)
    assert found.results().map.explained == pytest.approx(
        assessed(net, suite(slice(60))).results().map.explained, rel=1e-4
    )


def test_the_map_goes_with_a_saved_calibration(net, tmp_path):
    found = assessed(net, suite(slice(60)))
    found.save_calibration(tmp_path / "a.ncal")
    other = nc.Coverage(net, [nc.KMNC(10)])
    other.calibrate(tmp_path / "a.ncal")
    other.assess(suite(slice(60)), keep_inputs=True, progress=False)
    # The most surprising are named on the map where something tells surprise, as KMNC does not.
    assert other.results().map == replace(found.results().map, named=())
    assert [name for name, *_ in found.results().map.named] == [item.id for item in found.results().galleries[0].items]


def test_without_inputs_a_file_shows_and_names_none(net, tmp_path):
    data = [*suite(slice(60)), nc.Batch(torch.full((1, 1, 6, 6), torch.nan), torch.tensor([0]), ids=["odd <b>"])]
    found = assessed(net, data)
    found.save(tmp_path / "full.ncov")
    found.save(tmp_path / "bare.ncov", inputs=False)
    full, bare = (path.read_bytes() for path in (tmp_path / "full.ncov", tmp_path / "bare.ncov"))
    for sign in (b".png", b"odd <b>", b"\x89PNG", b"results.map", b"results.table"):
        assert sign in full
        assert sign not in bare, sign
    after = nc.Coverage.load(tmp_path / "bare.ncov").results()
    assert (after.galleries, after.map, after.fewer) == ((), None, None)
    assert after.growth == found.results().growth
    assert [row.dead for row in after.neurons] == [row.dead for row in found.results().neurons]
    assert not any("odd <b>" in sentence for sentence in after.findings)


def test_merging_joins_tables_by_input_and_says_what_it_drops(net, tmp_path):
    first, second = assessed(net, suite(slice(0, 40))), assessed(net, suite(slice(40, 60)))
    second.save(tmp_path / "b.ncov")
    first.merge(nc.Coverage.load(tmp_path / "b.ncov"))
    whole = assessed(net, suite(slice(60))).per_input()
    table = first.per_input()
    assert list(table["id"]) == list(whole["id"])
    assert list(table["MDSC(0.1, by=label, layers=hidden).score"]) == pytest.approx(
        list(whole["MDSC(0.1, by=label, layers=hidden).score"])
    )
    assert not any(name.endswith(".first") for name in table.columns)
    result = first.results()
    assert "KMNC(10)" not in result.growth
    assert any("were merged" in note and "dropped" in note for note in result.notes)
    titles = [gallery.title for gallery in result.galleries]
    assert "Most surprising" in titles
    assert "Adding most" not in titles
    assert all(item.picture for gallery in result.galleries for item in gallery.items)
    first.save(tmp_path / "c.ncov")
    loaded = nc.Coverage.load(tmp_path / "c.ncov").results()
    assert (loaded.galleries, loaded.notes) == (result.galleries, result.notes)


def test_an_input_of_both_suites_is_one_row(net, tmp_path):
    first, second = assessed(net, suite(slice(0, 30))), assessed(net, suite(slice(20, 60)))
    first.merge(second, overlap="allow")
    assert list(first.per_input()["id"]) == [f"<b>{row}</b>.png" for row in range(60)]
    # Into nothing, everything is taken over as it is.
    second.save_calibration(tmp_path / "a.ncal")
    empty = nc.Coverage(net, CRITERIA)
    empty.calibrate(tmp_path / "a.ncal")
    empty.merge(second)
    assert empty.results().growth == second.results().growth


def test_what_is_only_true_of_a_whole_suite_is_not_told_of_a_part(net):
    found = assessed(net, suite(slice(0, 30)))
    assert found.results().fewer is not None
    found.assess(suite(slice(30, 60)), keep_inputs=True, progress=False)
    result = found.results()
    assert len(found.per_input()) == 30
    assert result.fewer is None
    assert "Nearest to what is uncovered" not in [gallery.title for gallery in result.galleries]


def test_a_damaged_table_is_refused(net, tmp_path):
    found = assessed(net, suite(slice(60)))
    found.save(tmp_path / "a.ncov")
    with opened(tmp_path / "a.ncov", STATE) as file:
        names = dict(file.header["results"]["table"])
        assert json.loads(file.read("results.table.0").numpy().tobytes())[0] == "<b>0</b>.png"
    assert (names["id"], names["KMNC(10).first"], names["key"]) == ("text", "numbers", "words")
    columns = found.per_input().columns
    columns["label"] = columns["label"][:-1]
    found.save(tmp_path / "b.ncov")
    with pytest.raises(nc.NeuralcovError, match="columns of unequal length"):
        nc.Coverage.load(tmp_path / "b.ncov")


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (torch.tensor([[5, 6, 7], [1, 2, 3]]), "tokens 1 2 3"),
        ({"ids": torch.tensor([[5, 6], [1, 2]]), "mask": torch.ones(2, 2)}, "tokens 1 2"),
        (torch.tensor([[0.5, 0.25], [1.5, 2.0]]), "numbers 1.5 2"),
        (np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32), "numbers 3 4"),
        (torch.arange(2 * 100).view(2, 100), "tokens " + " ".join(map(str, range(100, 148))) + " …"),
    ],
)
def test_what_is_no_picture_is_text(inputs, text):
    store = ViewStore()
    store.add(inputs, 0, 2, list)
    assert store.views([1])[1].text == text
    assert store.views([7]) == {}


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_as_they_were_before_preprocessing(channels):
    pixels = torch.rand(4, channels, 9, 7, generator=torch.Generator().manual_seed(1))
    expected = (pixels * 255).round().to(torch.uint8)
    mean, std = [0.1] * channels, [0.3] * channels
    for inputs, told in (
        (pixels, None),
        (expected, None),
        (255 * pixels, None),
        ((pixels - 0.1) / 0.3, {"mean": mean, "std": std}),
        (pixels.permute(0, 2, 3, 1), None),
    ):
        store = ViewStore(told)
        store.add(inputs, 0, 4, list)
        drawn = np.asarray(Image.open(io.BytesIO(store.views([2])[2].picture))).reshape(9, 7, channels)
        assert np.abs(drawn.astype(int) - expected[2].permute(1, 2, 0).numpy()).max() <= 1
    store = ViewStore()
    store.add(torch.rand(1, 3, 200, 100), 0, 1, list)
    assert Image.open(io.BytesIO(store.views([0])[0].picture)).size == (32, 64)


def test_when_memory_is_short_only_what_would_be_shown_is_kept():
    store = ViewStore(budget=6 * 36)
    inputs = pictures(12, 1)
    for start in range(0, 12, 4):
        store.add(inputs[start : start + 4], start, 4, lambda: [0, 5])
    assert set(store.views(range(12))) == {0, 5, 8, 9, 10, 11}
    drawn = np.asarray(Image.open(io.BytesIO(store.views([5])[5].picture)))
    assert np.array_equal(drawn, (inputs[5, 0] * 255).round().to(torch.uint8).numpy())

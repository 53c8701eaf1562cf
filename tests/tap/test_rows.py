"""Rows go to the inputs they belong to, whatever the layout: compared with running every input alone."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import neuralcov as nc
from neuralcov.tap import Batch, Tap
from neuralcov.tap.axes import OutputAxes
from neuralcov.tap.rows import RowOrder, find_order, note
from tests.tap.rows_support import Folds

LINEAR = OutputAxes(channels_first=False)


def one_by_one(model, inputs, axis=0, **options):
    """Every layer's neurons with each input run alone, in which all rows are its own."""
    tap = Tap(model, batch_axis=axis, **options)
    parts = [tap.run(Batch(part))[0] for part in inputs.split(1, axis)]
    return {name: torch.cat([part.layers[name] for part in parts]) for name in parts[0].layers}


def assert_rows_right(model, inputs, axis=0, sizes=(2, 3, 4, 5, 7), order=None):
    expected = one_by_one(model, inputs, axis)
    for size in (*sizes, inputs.shape[axis]):
        tap = Tap(model, batch_axis=axis)
        for start in range(0, inputs.shape[axis], size):
            count = min(size, inputs.shape[axis] - start)
            batch, _ = tap.run(Batch(inputs.narrow(axis, start, count)))
            for name, outputs in expected.items():
                torch.testing.assert_close(batch.layers[name], outputs[start : start + count], rtol=1e-5, atol=1e-6)
    if order is not None:
        assert tap.known_rows.orders["fc"].order == order


def test_time_first_encoders_give_one_value_however_inputs_are_split():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 1)
    inputs = torch.randn(8, 24, 8)
    values = []
    for size in (1, 2, 3, 4, 5, 8, 24):
        coverage = nc.Coverage(encoder, [nc.NLC(rule="all")], batch_axis=1)
        coverage.assess(inputs.split(size, 1), progress=False)
        values.append(coverage.values()["NLC(rule=all)"])
    assert values == pytest.approx([values[0]] * len(values), rel=1e-6)
    assert_rows_right(encoder, inputs, axis=1, sizes=(2, 3, 4, 8))


FOLDS = {
    "cat": (lambda x: torch.cat([x[:, 0], x[:, 1]]), "input-minor"),
    "three joined": (lambda x: torch.cat([x[:, 0], x[:, 1], -x[:, 2]]), "input-minor"),
    "flatten": (lambda x: x.flatten(0, 1), "input-major"),
    "transpose and flatten": (lambda x: x.transpose(0, 1).reshape(-1, 5), "input-minor"),
    "repeat": (lambda x: x[:, 0].repeat(3, 1), "input-minor"),
    "repeat_interleave": (lambda x: x[:, 0].repeat_interleave(3, 0), "input-major"),
    "in place": (lambda x: x, "in place"),
    "time first": (lambda x: x.transpose(0, 1), "in place"),
    "packed": (lambda x: pack_padded_sequence(x, torch.full((len(x),), 4), batch_first=True).data, "input-minor"),
    "windows": (lambda x: x.reshape(len(x) * 2, 2, 5), "input-major"),
}


@pytest.mark.parametrize("fold", FOLDS, ids=str)
@pytest.mark.parametrize("values", ["random", "sorted", "int8", "duplicates"])
def test_every_order_of_rows_is_found(fold, values):
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(12, 4, 5, generator=random)
    if values == "sorted":
        inputs = inputs.flatten().sort().values.reshape(inputs.shape)
    elif values == "int8":
        inputs = torch.randint(-128, 128, inputs.shape, generator=random, dtype=torch.int8).float()
    elif values == "duplicates":
        inputs[1] = inputs[0]
        inputs[2] = inputs[0]
    function, order = FOLDS[fold]
    assert_rows_right(Folds(function), inputs, sizes=(3, 4, 7) if values == "duplicates" else (2, 3, 4, 7), order=order)


def test_the_order_is_found_in_half_precision_too():
    inputs = torch.randn(12, 4, 5, dtype=torch.bfloat16)
    model = Folds(FOLDS["cat"][0]).bfloat16()
    tap = Tap(model)
    batch, _ = tap.run(Batch(inputs))
    assert tap.known_rows.orders["fc"] == RowOrder(0, "input-minor", 2)
    torch.testing.assert_close(batch.layers["fc"], one_by_one(model, inputs)["fc"], rtol=0.02, atol=0.02)


def test_tokens_through_an_embedding():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.fc = nn.Embedding(30, 5), nn.Linear(5, 4)

        def forward(self, ids):
            return self.fc(self.words(ids).transpose(0, 1).reshape(-1, 5))

    torch.manual_seed(0)
    assert_rows_right(Tokens(), torch.randint(0, 30, (12, 6)), order="input-minor")


def test_k_rows_per_input_may_follow_the_inputs_length():
    """Sequences of other lengths have other numbers of rows; the order stays."""
    model, calls = Folds(lambda x: x.transpose(0, 1).reshape(-1, 5)), []
    tap = Tap(model)
    model.register_forward_hook(lambda *_: calls.append(1))
    for steps in (4, 6, 2, 1, 3):
        inputs = torch.randn(6, steps, 5)
        batch, _ = tap.run(Batch(inputs))
        torch.testing.assert_close(batch.layers["fc"], model.fc(inputs).mean(1), rtol=1e-5, atol=1e-6)
    assert len(calls) == 5 + 2


def test_one_row_per_input_is_asked_again_when_there_are_more():
    model = Folds(lambda x: x.transpose(0, 1).reshape(-1, 5))
    tap = Tap(model)
    for steps in (1, 4):
        inputs = torch.randn(6, steps, 5)
        batch, _ = tap.run(Batch(inputs))
        torch.testing.assert_close(batch.layers["fc"], model.fc(inputs).mean(1), rtol=1e-5, atol=1e-6)
    assert tap.known_rows.orders["fc"].order == "input-minor"


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.text, self.image = nn.Linear(4, 3), nn.Linear(7, 3)

    def forward(self, text, image):
        return self.image(image) @ self.text(text).t()


@pytest.mark.parametrize("batch", ["image", 10])
def test_the_tower_that_has_one_row_per_input_is_measured(batch):
    item = {"text": torch.randn(5, 4), "image": torch.randn(10, 7)}
    model = Towers()
    with pytest.raises(nc.NeuralcovError, match=r"shapes \(5, 4\) and \(10, 7\) \('image'\).*batch_axis=.*unpack="):
        nc.Coverage(model, [nc.NC()]).update(item)
    coverage = nc.Coverage(model, [nc.NLC(rule="all")], unpack=lambda item: (item, None, batch))
    with pytest.warns(nc.CoverageWarning, match=r"1 layer was left out.*'text' \(shapes \(5, 3\) and \(5, 3\)"):
        coverage.assess([item], progress=False)
    assert coverage.inputs == 10
    outputs = model.image(item["image"]).detach().double().numpy()
    expected = np.abs(np.cov(outputs, rowvar=False, bias=True)).sum() / 9
    assert coverage.values()["NLC(rule=all)"] == pytest.approx(expected, rel=1e-5)


def test_both_towers_of_pairs_are_measured():
    x, y = torch.randn(10, 4), torch.randn(10, 7)
    model = Towers()
    batch, _ = Tap(model).run(Batch((x, y)))
    assert sorted(batch.layers) == ["image", "text"]
    torch.testing.assert_close(batch.layers["text"], model.text(x))


def test_clip_with_more_images_than_prompts():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 30, "max_position_embeddings": 8},
        vision_config={**sizes, "image_size": 8, "patch_size": 4},
        projection_dim=6,
    )
    model = transformers.CLIPModel(config).eval()
    images = torch.randn(40, 3, 8, 8)
    item = {"input_ids": torch.randint(0, 30, (5, 8)), "pixel_values": images}
    with pytest.raises(nc.NeuralcovError, match=r"shapes \(5, 8\) and \(40, 3, 8, 8\)"):
        nc.Coverage(model, [nc.NC()]).assess([item], progress=False)
    coverage = nc.Coverage(model, [nc.NLC(rule="all")], unpack=lambda item: (item, None, "pixel_values"))
    with pytest.warns(nc.CoverageWarning, match="text_model"):
        coverage.assess([item], progress=False)
    assert coverage.inputs == 40
    assert all(layer.startswith(("vision_model", "visual_projection")) for layer in coverage.layout)
    vision = nc.Coverage(model.vision_model, [nc.NLC(rule="all")])
    vision.update({"pixel_values": images})
    rows = {row.layer: row.values["NLC(rule=all)"] for row in coverage.by_layer()}
    for row in vision.by_layer():
        assert rows[f"vision_model.{row.layer}"] == pytest.approx(row.values["NLC(rule=all)"], rel=1e-4)


def test_a_probe_happens_once_and_a_batch_of_one_needs_none():
    model, calls = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 2)), []
    model.register_forward_hook(lambda module, args, output: calls.append(len(args[0])))
    coverage = nc.Coverage(model, [nc.NLC(), nc.KMNC(10)])
    inputs = torch.randn(8, 1, 5, 5)
    coverage.calibrate([inputs[:1], inputs, inputs], progress=False)
    coverage.assess([inputs, inputs], progress=False)
    coverage.gain(inputs)
    coverage.probe(inputs)
    assert calls == [1, 3, 2, 8, 8, 8, 8, 8, 3, 2]
    calls.clear()
    two = nc.Coverage(model, [nc.NLC()])
    two.update(inputs[:2])
    two.update(inputs)
    assert calls == [2, 1, 2, 8]
    calls.clear()
    for row in inputs.split(1):
        nc.Coverage(model, [nc.NLC()]).update(row)
    assert calls == [1] * 8
    with pytest.raises(nc.NeuralcovError, match="a probe of 1 input: expected two or more"):
        two.probe(inputs[:1])


def test_the_probe_leaves_random_numbers_buffers_modes_and_inputs_alone():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.fc, self.norm = nn.Dropout(0.5), nn.Linear(5, 4), nn.BatchNorm1d(4)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += len(x)
            np.random.random()
            return self.norm(self.fc(self.drop(x.add_(1))))

    torch.manual_seed(0)
    model, inputs = Noisy().train(), torch.randn(8, 5)
    expected = []
    for probed in (True, False):
        twin = copy.deepcopy(model)
        tap = Tap(twin, mode="keep")
        if not probed:
            tap.known_rows.asked, tap.known_rows.why_not = True, "no probe"
        torch.manual_seed(1)
        np.random.seed(1)
        given = inputs.clone()
        with tap.open():
            batch, output = tap.run(Batch(given))
            assert twin.seen == 8
        assert torch.equal(given, inputs + 1)
        assert twin.training
        assert twin.norm.training
        expected.append((batch.layers["fc"], output, torch.rand(3), torch.tensor(np.random.random()), twin.seen))
    for one, other in zip(*expected, strict=True):
        assert torch.equal(one, other)
    assert expected[0][-1] == 0


def test_a_model_that_takes_batches_of_one_size_only():
    class Fixed(nn.Module):
        def __init__(self, tokens):
            super().__init__()
            self.fc, self.tokens = nn.Linear(5, 4), tokens

        def forward(self, x):
            return self.fc(x.reshape(6, self.tokens, 5) if self.tokens else x.reshape(6, 5))

    batch, _ = Tap(Fixed(0)).run(Batch(torch.randn(6, 5)))
    assert batch.layers["fc"].shape == (6, 4)
    with pytest.raises(nc.NeuralcovError, match=r"leaves open.*cannot be run on a few of them alone \(RuntimeError"):
        Tap(Fixed(6)).run(Batch(torch.randn(6, 6, 5)))


def test_inputs_that_are_no_tensors_are_not_probed():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.calls = nn.Linear(5, 4), 0

        def forward(self, x, cache):
            self.calls += 1
            return self.fc(x)

    model = Cached()
    batch, _ = Tap(model).run(Batch((torch.randn(6, 5), object())))
    assert batch.layers["fc"].shape == (6, 4)
    assert model.calls == 1
    with pytest.raises(nc.NeuralcovError, match=r"leaves open.*and the inputs hold objects other than tensors"):
        Tap(model).run(Batch((torch.randn(6, 6, 5), object())))


def test_orders_are_kept_with_the_state(tmp_path):
    model, inputs = Folds(FOLDS["cat"][0]), torch.randn(12, 4, 5)
    coverage = nc.Coverage(model, [nc.NLC(rule="all")])
    coverage.update(inputs)
    coverage.save(tmp_path / "a.ncov")
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    again = nc.Coverage.load(tmp_path / "a.ncov", model)
    again.update(inputs)
    assert len(calls) == 1
    assert again.values()["NLC(rule=all)"] == pytest.approx(coverage.values()["NLC(rule=all)"])
    bare = nc.Coverage.load(tmp_path / "a.ncov")
    other = nc.Coverage(Folds(FOLDS["flatten"][0]), [nc.NLC(rule="all")])
    other.update(inputs)
    for one in (coverage, bare):
        with pytest.raises(
            nc.NeuralcovError, match=r"layer 'fc' has its rows input-major .* but input-minor on axis 0 in"
        ):
            one.merge(other)
    alone = nc.Coverage(model, [nc.NLC(rule="all")])
    alone.update(torch.randn(1, 4, 5))
    for one in (coverage, bare):
        one.merge(alone)
        assert one.inputs == 13


def test_the_nearest_row_decides():
    """Against a plain search over both orders, written out."""
    random = np.random.default_rng(0)
    for trial in range(40):
        per_input, width = int(random.integers(2, 5)), int(random.integers(1, 4))
        rows = random.standard_normal((3, per_input, width))
        if trial % 4 == 0:
            rows = np.round(rows)
        for order in ("input-major", "input-minor"):
            larger, smaller = (
                rows[:n].reshape(-1, width)
                if order == "input-major"
                else rows[:n].transpose(1, 0, 2).reshape(-1, width)
                for n in (3, 2)
            )
            scaled = (larger - larger.mean(0)) / np.where(larger.std(0) > 0, larger.std(0), np.inf)
            queries = (smaller - larger.mean(0)) / np.where(larger.std(0) > 0, larger.std(0), np.inf)
            distances = np.sqrt(((queries[:, None] - scaled[None]) ** 2).sum(2))
            fitting = []
            for name, spot in (
                ("input-major", lambda r: r),
                ("input-minor", lambda r: r // 2 * 3 + r % 2),
            ):
                named = np.array([distances[r, spot(r)] for r in range(len(smaller))])
                if (named <= distances.min(1) + 1e-9).all():
                    fitting.append(name)
            assert order in fitting
            found = find_order(
                note(torch.from_numpy(larger), LINEAR, 3), note(torch.from_numpy(smaller), LINEAR, 2), (3, 2)
            )
            assert found == RowOrder(0, fitting[0] if len(fitting) == 1 else "undecided", per_input)

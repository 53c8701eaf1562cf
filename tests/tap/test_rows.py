"""Rows go to the inputs they belong to, whatever the layout: compared with running every input alone."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import neuralcov as nc
from neuralcov.tap import Batch, Tap
from neuralcov.tap.axes import OutputAxes
from neuralcov.tap.rows import RowOrder, find_order, note

LINEAR = OutputAxes(channels_first=False)


class Folds(nn.Module):
    """A Linear that sees the rows of all inputs in an order of somebody's choice."""

    def __init__(self, fold, width=5):
        super().__init__()
        torch.manual_seed(0)
        self.fold, self.fc = fold, nn.Linear(width, 6)

    def forward(self, x, *rest):
        self.fc(self.fold(x, *rest))
        return x.flatten(1)


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


class PacksInside(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.head = nn.Linear(3, 4), nn.Linear(3, 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        self.fc(packed.data)
        return self.head(pad_packed_sequence(packed, batch_first=True)[0].sum(1))


def test_packed_rows_of_unequal_lengths_are_never_given_to_the_wrong_input():
    x = torch.randn(6, 4, 3)
    unequal = torch.tensor([4, 2, 3, 1, 4, 4])  # 18 rows, three per input on average
    with pytest.warns(nc.CoverageWarning, match=r"1 layers were left out.*'fc' \(shapes \(9, 4\).*layers='!fc'"):
        batch, _ = Tap(PacksInside()).run(Batch((x, unequal)))
    assert list(batch.layers) == ["head"]
    # The first batch has equal lengths, which show an order; the second does not follow it.
    tap = Tap(PacksInside())
    batch, _ = tap.run(Batch((x, torch.full((6,), 3))))
    torch.testing.assert_close(batch.layers["fc"], tap.model.fc(x[:, :3]).mean(1), rtol=1e-5, atol=1e-6)
    with pytest.raises(nc.NeuralcovError, match=r"layer 'fc' does not tell.*unlike lengths.*layers='!fc'.*rows="):
        tap.run(Batch((x, unequal)))
    # Nor if the first three inputs are of one length.
    later = torch.tensor([3, 3, 3, 1, 4, 4])
    with pytest.warns(nc.CoverageWarning, match="unlike lengths"):
        batch, _ = Tap(PacksInside()).run(Batch((x, later)))
    assert list(batch.layers) == ["head"]


def test_packed_inputs_of_unequal_lengths():
    class OnPacked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.rnn = nn.Linear(3, 4), nn.GRU(3, 2, batch_first=True)

        def forward(self, packed):
            self.fc(packed.data)
            return self.rnn(packed)[1]

    x = torch.randn(6, 4, 3)
    packed = pack_padded_sequence(x, torch.tensor([3, 3, 3, 1, 4, 4]), batch_first=True, enforce_sorted=False)
    with pytest.warns(nc.CoverageWarning, match="'fc'.*unlike lengths"):
        batch, _ = Tap(OnPacked()).run(Batch(packed))
    assert list(batch.layers) == [f"rnn[{step}]" for step in range(4)]
    assert batch.present["rnn[1]"].tolist() == [True, True, True, False, True, True]


def test_masked_tokens_taken_out_of_the_batch():
    """What leaves padding out before its layers (as varlen attention does) has no order but for full inputs."""

    class Unpads(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(3, 4), nn.Linear(3, 2)

        def forward(self, x, mask):
            self.fc(x[mask.bool()])
            return self.head(x.mean(1))

    x, mask = torch.randn(6, 4, 3), torch.ones(6, 4, dtype=torch.long)
    tap = Tap(Unpads())
    batch, _ = tap.run(Batch((x, mask)))
    torch.testing.assert_close(batch.layers["fc"], tap.model.fc(x).mean(1), rtol=1e-5, atol=1e-6)
    mask[4, 2:] = 0
    with pytest.raises(nc.NeuralcovError, match="layer 'fc' does not tell"):
        tap.run(Batch((x, mask)))


def test_chosen_layers_without_an_order_are_refused():
    x, lengths = torch.randn(6, 4, 3), torch.tensor([4, 2, 3, 1, 4, 4])
    for choice, text in (("fc|head", "fc|head|!fc"), (["fc", "head"], "!fc"), (nn.Linear, "!fc")):
        coverage = nc.Coverage(PacksInside(), [nc.NC()], layers=choice)
        with pytest.raises(nc.NeuralcovError) as caught:
            coverage.update((x, lengths))
        sentence = str(caught.value)
        for part in ("layer 'fc'", "(9, 4)", "(6, 4)", f"layers={text!r}", "rows="):
            assert part in sentence
        assert coverage.inputs == 0
    coverage = nc.Coverage(PacksInside(), [nc.NC()], layers="fc|head|!fc")
    coverage.update((x, lengths))
    assert list(coverage.layout) == ["head"]


def test_rows_say_whose_they_are():
    x, lengths = torch.randn(6, 4, 3), torch.tensor([4, 2, 3, 1, 4, 4])

    def rows(layer, output):
        if layer != "fc":
            return None
        size = next(n for n in (6, 3, 2) if int(lengths[:n].sum()) == len(output))
        numbers = torch.arange(size)[:, None].expand(size, 4)
        return pack_padded_sequence(numbers, lengths[:size], batch_first=True, enforce_sorted=False).data

    model = PacksInside()
    batch, _ = Tap(model, rows=rows).run(Batch((x, lengths)))
    expected = torch.stack([model.fc(row[:n]).mean(0) for row, n in zip(x, lengths, strict=True)])
    torch.testing.assert_close(batch.layers["fc"], expected, rtol=1e-5, atol=1e-6)
    assert batch.present["fc"].all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 1], r"rows= returned type torch.int64 and shape \(2,\) for layer 'fc': expected 8 integers"),
        (torch.zeros(8), "rows= returned type torch.float32"),
        ([9] * 8, r"rows= returned inputs from 9 to 9 for layer 'fc': expected -1 to 3"),
        ([-2] * 8, "rows= returned inputs from -2 to -2"),
    ],
)
def test_rows_that_do_not_fit(given, message):
    model = Folds(lambda x: torch.cat([x, x]))
    with pytest.raises(nc.NeuralcovError, match=message):
        Tap(model, rows=lambda layer, output: given if len(output) == 8 else [0] * len(output)).run(
            Batch(torch.randn(4, 5))
        )
    with pytest.raises(nc.NeuralcovError, match="rows='x': expected a function"):
        nc.Coverage(model, [nc.NC()], rows="x")


class Experts(nn.Module):
    """Every input goes to one expert, by its content."""

    def __init__(self, experts=4):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Linear(5, 6)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)) for _ in range(experts))

    def forward(self, x):
        hidden = self.stem(x)
        self.route = torch.bucketize(x[:, 0].contiguous(), torch.tensor([-0.7, 0.0, 0.7])[: len(self.experts) - 1])
        output = x.new_zeros(len(x), 3)
        for number, expert in enumerate(self.experts):
            chosen = self.route == number
            if chosen.any():
                output[chosen] = expert(hidden[chosen])
        return output


def test_experts_are_left_out_or_measured_as_rows_say():
    inputs = torch.randn(20, 5, generator=torch.Generator().manual_seed(3))
    model = Experts()
    coverage = nc.Coverage(model, [nc.NLC(rule="all")])
    with pytest.warns(nc.CoverageWarning) as caught:
        coverage.assess(inputs.split(10), progress=False)
    left_out, unmeasured = (str(warned.message) for warned in caught)
    assert "8 layers were left out" in left_out
    assert "of the model's parameters" in unmeasured
    assert list(coverage.layout) == ["stem"]
    assert any("experts.0.0" in finding.sentence for finding in coverage.findings())

    def rows(layer, output):
        if not layer.startswith("experts."):
            return None
        return (model.route == int(layer.split(".")[1])).nonzero()[:, 0]

    told = nc.Coverage(model, [nc.NLC(rule="all"), nc.KMNC(10)], rows=rows)
    told.calibrate([inputs], progress=False)
    told.assess(inputs.split(10), progress=False)
    alone = nc.Coverage(model, [nc.NLC(rule="all"), nc.KMNC(10)])
    alone.calibrate(inputs.split(1), progress=False)
    alone.assess(inputs.split(1), progress=False)
    assert told.values() == pytest.approx(alone.values(), rel=1e-5)
    assert sorted(told.layout) == sorted(alone.layout)
    batch, _ = told.run(inputs)
    model(inputs)
    for number in range(4):
        mine = model.route == number
        assert torch.equal(batch.present[f"experts.{number}.2"], mine)
        assert not batch.layers[f"experts.{number}.2"][~mine].any()
        expected = model.experts[number](model.stem(inputs[mine]))
        torch.testing.assert_close(batch.layers[f"experts.{number}.2"][mine], expected, rtol=1e-5, atol=1e-6)


def test_tokens_routed_to_experts_are_averaged_per_input():
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(2))

        def forward(self, x):
            flat = x.reshape(-1, 5)
            self.route = (flat[:, 0] > 0).long()
            self.tokens = x.shape[1]
            output = flat.new_zeros(len(flat), 3)
            for number, expert in enumerate(self.experts):
                output[self.route == number] = expert(flat[self.route == number])
            return output.reshape(*x.shape[:2], 3).mean(1)

    model, inputs = Routed(), torch.randn(9, 4, 5)

    def rows(layer, output):
        tokens = (model.route == int(layer[-1])).nonzero()[:, 0]
        return tokens // model.tokens

    batch, _ = Tap(model, rows=rows).run(Batch(inputs))
    for number in range(2):
        for index, tokens in enumerate(inputs):
            mine = tokens[(tokens[:, 0] > 0) == bool(number)]
            assert bool(batch.present[f"experts.{number}"][index]) == (len(mine) > 0)
            expected = model.experts[number](mine).mean(0) if len(mine) else torch.zeros(3)
            torch.testing.assert_close(batch.layers[f"experts.{number}"][index], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_experts_with_as_many_tokens_of_each_input_by_chance(seed):
    """Two tokens of each of the first three inputs go to each expert, and two on average of the others."""

    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts, self.head = nn.ModuleList(nn.Linear(5, 3) for _ in range(2)), nn.Linear(5, 2)

        def forward(self, x):
            flat = x.reshape(-1, 5)
            for number, expert in enumerate(self.experts):
                expert(flat[(flat[:, 0] > 0) == bool(number)])
            return self.head(x.mean(1))

    inputs = torch.randn(12, 4, 5, generator=torch.Generator().manual_seed(seed))
    positive = torch.tensor([2, 2, 2, 1, 3, 0, 4, 2, 2, 3, 1, 2])
    inputs[:, :, 0] = inputs[:, :, 0].abs() * torch.where(torch.arange(4) < positive[:, None], 1, -1)
    with pytest.warns(nc.CoverageWarning, match="2 layers were left out"):
        batch, _ = Tap(Routed()).run(Batch(inputs))
    assert list(batch.layers) == ["head"]


def test_experts_that_all_inputs_go_through_are_measured():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(3))

        def forward(self, x):
            return sum(expert(x) for expert in self.experts)

    model, inputs = Mixture(), torch.randn(9, 5)
    batch, _ = Tap(model).run(Batch(inputs))
    torch.testing.assert_close(batch.layers["experts.1"], model.experts[1](inputs))


def test_layers_that_do_not_fire_are_absent_for_their_inputs():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.positive, self.negative = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            hidden = self.first(x)
            return self.positive(hidden) if x.mean() > 0 else self.negative(hidden)

    model, inputs = Branches(), torch.randn(4, 3).abs()
    coverage = nc.Coverage(model, [nc.NLC(rule="all")])
    with pytest.raises(
        nc.NeuralcovError, match=r"layer 'negative' did not run in any forward pass.*layers='!negative'"
    ):
        coverage.update(inputs)
    assert coverage.inputs == 0
    with pytest.raises(nc.NeuralcovError, match="layer 'negative' did not run"):
        coverage.assess([inputs], progress=False)
    with pytest.raises(nc.NeuralcovError, match="layer 'negative' did not run"), coverage.tap():
        coverage.update(inputs)
    coverage.reset()
    coverage.assess([inputs, -inputs, 2 * inputs], progress=False)
    assert list(coverage.layout) == ["first", "positive", "negative"]
    outputs = {
        "first": model.first(torch.cat([inputs, -inputs, 2 * inputs])),
        "positive": model.positive(model.first(torch.cat([inputs, 2 * inputs]))),
        "negative": model.negative(model.first(-inputs)),
    }
    expected = sum(
        np.abs(np.cov(o.detach().double().numpy(), rowvar=False, bias=True)).sum() / o.shape[1] ** 2
        for o in outputs.values()
    )
    assert coverage.values()["NLC(rule=all)"] == pytest.approx(expected, rel=1e-5)
    coverage.update(inputs)  # all have fired by now
    batch, _ = coverage.run(-inputs)
    assert not batch.present["positive"].any()
    assert not batch.layers["positive"].any()


class Detector(nn.Module):
    """Takes a list of images of any size, proposes regions by content and pools each of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.box = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 5)

    def forward(self, images, targets=None):
        height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
        padded = [nn.functional.pad(i, (0, width - i.shape[2], 0, height - i.shape[1])) for i in images]
        maps = self.backbone(torch.stack(padded))
        proposals = [features.flatten(1).t()[features[0].flatten() > 0] for features in maps]
        return [{"scores": scores} for scores in self.box(torch.cat(proposals)).split([len(p) for p in proposals])]


def test_lists_of_images_and_unequal_proposals():
    random = torch.Generator().manual_seed(0)
    images = [torch.randn(3, 5 + i % 3, 6, generator=random) for i in range(6)]
    model = Detector()
    targets = tuple({"boxes": torch.zeros(1, 4)} for _ in images)
    for batch in ((images,), (images, list(targets)), (tuple(images), targets)):
        coverage = nc.Coverage(model, [nc.NLC(rule="all")])
        with pytest.warns(nc.CoverageWarning, match=r"1 layers were left out.*'box' \(shapes"):
            coverage.update(batch)
        assert coverage.inputs == 6
        assert list(coverage.layout) == ["backbone"]
    coverage = nc.Coverage(model, [nc.NLC(rule="all")], unpack=lambda item: (item["images"], None))
    with pytest.warns(nc.CoverageWarning, match="1 layers were left out"):
        coverage.assess([{"images": images[:4]}, {"images": images[4:]}], progress=False)
    assert coverage.inputs == 6
    activations, _ = nc.Coverage(model, [nc.NC()], layers="backbone").run(images[::3], predictions=False)
    maps = model.backbone(torch.stack(images[::3]))
    torch.testing.assert_close(activations.layers["backbone"], maps.mean((2, 3)), rtol=1e-5, atol=1e-6)


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
    with pytest.warns(nc.CoverageWarning, match=r"1 layers were left out.*'text' \(shapes \(5, 3\) and \(5, 3\)"):
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
    with pytest.raises(nc.NeuralcovError, match="a probe of 1 inputs: expected two or more"):
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


def test_layers_left_out_stay_left_out_after_loading(tmp_path):
    x, lengths = torch.randn(6, 4, 3), torch.tensor([4, 2, 3, 1, 4, 4])
    coverage = nc.Coverage(PacksInside(), [nc.NC()])
    with pytest.warns(nc.CoverageWarning, match="left out"):
        coverage.update((x, lengths))
    with pytest.warns(nc.CoverageWarning, match="67 % of the model's parameters"):
        coverage.save(tmp_path / "a.ncov")
    again = nc.Coverage.load(tmp_path / "a.ncov", PacksInside())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.update((x, lengths))
    assert again.inputs == 12


def test_a_layer_measured_in_batches_of_one_cannot_be_left_out_later():
    x, lengths = torch.randn(6, 4, 3), torch.tensor([4, 2, 3, 1, 4, 4])
    coverage = nc.Coverage(PacksInside(), [nc.NC()])
    coverage.update((x[:1], lengths[:1]))
    with pytest.raises(nc.NeuralcovError, match="layer 'fc' does not tell"):
        coverage.update((x, lengths))
    assert coverage.inputs == 1


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


def test_experts_of_transformers_that_are_modules():
    """Switch Transformers route tokens by content; each input alone shows which rows are its own."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.SwitchTransformersConfig(
        vocab_size=40, d_model=8, d_kv=4, d_ff=12, num_layers=2, num_sparse_encoder_layers=2, num_heads=2, num_experts=3
    )
    model = transformers.SwitchTransformersEncoderModel(config).eval()
    ids = torch.randint(1, 40, (10, 6))
    together, _ = _in_one_block(Tap(model), [{"input_ids": ids}])[0]
    alone = _in_one_block(Tap(model), [{"input_ids": row} for row in ids.split(1)])
    experts = [layer for layer in together.layers if "expert_" in layer]
    assert len(experts) == 2 * 3 * 2
    for layer, outputs in together.layers.items():
        for index, (one, _) in enumerate(alone):
            present = bool(together.present[layer][index]) if layer in together.present else True
            assert present == (bool(one.present[layer][0]) if layer in one.present else True)
            torch.testing.assert_close(outputs[index], one.layers[layer][0], rtol=1e-4, atol=1e-5)
    masked = torch.ones(10, 6, dtype=torch.long)
    masked[:, 3:] = 0
    padded, _ = _in_one_block(Tap(model), [{"input_ids": ids, "attention_mask": masked}])[0]
    short, _ = _in_one_block(Tap(model), [{"input_ids": ids[:, :3]}])[0]
    for layer in experts:
        assert torch.equal(padded.present[layer], short.present[layer])
        torch.testing.assert_close(padded.layers[layer], short.layers[layer], rtol=1e-4, atol=1e-5)


def _in_one_block(tap, inputs):
    with tap.open():
        return [tap.run(Batch(part)) for part in inputs]

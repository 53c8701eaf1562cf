"""Rows that follow no order: packed, routed to experts, proposals of detectors; and towers of other counts."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import neuralcov as nc
from neuralcov.tap import Batch, Tap
from tests.tap.rows_support import Folds


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
    with pytest.warns(nc.CoverageWarning, match=r"1 layer was left out.*'fc' \(shapes \(9, 4\).*layers='!fc'"):
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
        with pytest.warns(nc.CoverageWarning, match=r"1 layer was left out.*'box' \(shapes"):
            coverage.update(batch)
        assert coverage.inputs == 6
        assert list(coverage.layout) == ["backbone"]
    coverage = nc.Coverage(model, [nc.NLC(rule="all")], unpack=lambda item: (item["images"], None))
    with pytest.warns(nc.CoverageWarning, match="1 layer was left out"):
        coverage.assess([{"images": images[:4]}, {"images": images[4:]}], progress=False)
    assert coverage.inputs == 6
    activations, _ = nc.Coverage(model, [nc.NC()], layers="backbone").run(images[::3], predictions=False)
    maps = model.backbone(torch.stack(images[::3]))
    torch.testing.assert_close(activations.layers["backbone"], maps.mean((2, 3)), rtol=1e-5, atol=1e-6)


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

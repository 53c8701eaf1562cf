"""Means and mean squares of inputs, channel by channel, whatever form a batch has."""

import pytest
import torch

import neuralcov as nc
from neuralcov.tap.members import Members
from neuralcov.tap.moments import moments_of


def found(inputs, **options):
    return moments_of(Members.of(inputs, **options))


def expected(x, axes):
    return torch.stack([x.float().mean(axes), x.float().square().mean(axes)], dim=-1)


def test_images_have_a_channel_for_each_colour():
    x = torch.rand(5, 3, 8, 6)
    assert torch.allclose(found(x), expected(x, (2, 3)))
    assert torch.allclose(found(x.permute(0, 2, 3, 1)), expected(x, (2, 3)))
    pixels = torch.randint(0, 256, (5, 3, 8, 6), dtype=torch.uint8)
    assert torch.allclose(found(pixels), expected(pixels, (2, 3)))
    assert torch.allclose(found({"pixel_values": x, "attention_mask": torch.ones(5, 4)}), expected(x, (2, 3)))


@pytest.mark.parametrize("shape", [(5, 7), (5, 1, 8, 8), (5, 12, 3), (5, 6, 8, 8)])
def test_other_inputs_are_one_channel(shape):
    x = torch.randn(shape)
    assert torch.allclose(found(x), expected(x.flatten(1), 1)[:, None], atol=1e-6)


def test_rows_are_inputs_whatever_the_batch_axis():
    x = torch.randn(9, 5, 4)
    assert torch.allclose(found(x, batch_axis=1), expected(x.transpose(0, 1).flatten(1), 1)[:, None], atol=1e-6)


def test_half_precision_does_not_overflow():
    x = torch.full((4, 3, 200, 200), 300.0, dtype=torch.float16)
    assert torch.allclose(found(x)[0, 0], torch.tensor([300.0, 90_000.0]))


def test_tokens_have_no_scale():
    assert found(torch.randint(0, 99, (5, 7))) is None
    assert found({"input_ids": torch.randint(0, 99, (5, 7)), "attention_mask": torch.ones(5, 7)}) is None
    assert found([torch.rand(3, 4, 5), torch.rand(3, 6, 5)]) is None
    assert found(torch.rand(5)) is None


def test_batches_keep_them_when_taken_apart_and_joined():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    cov = nc.Coverage(model, [nc.NC(0.5)])
    x = torch.rand(6, 3, 2, 2)
    batch, _ = cov.run(x)
    assert torch.equal(batch.moments, found(x))
    parts = batch.take(slice(0, 2)), batch.take(torch.tensor([2, 3, 4, 5]))
    assert torch.equal(nc.Activations.cat(parts).moments, batch.moments)


def test_a_model_that_overwrites_its_inputs_is_asked_before():
    class Overwriting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(x.mul_(0))

    x = torch.rand(6, 4)
    kept = x.clone()
    cov = nc.Coverage(Overwriting(), [nc.NC(0.5)])
    assert torch.equal(cov.run(x)[0].moments, found(kept))

"""Stylising with small networks, against a transcription of AdaIN for one picture."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from neuralcov.core.errors import InputError
from neuralcov.fuzz import Stylise, style_folder
from neuralcov.fuzz.mutations import MutationDraw


@pytest.fixture
def networks():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(8))
    decoder = nn.Sequential(nn.Upsample(scale_factor=8), nn.Conv2d(6, 3, 3, padding=1), nn.Sigmoid())
    return encoder, decoder


def plain(encoder, decoder, image, style, strength, side):
    """One picture: features with the style's mean and deviation per channel, mixed, drawn."""
    with torch.no_grad():
        larger = functional.interpolate(image[None], (side, side), mode="bilinear", align_corners=False)
        content, wanted = (encoder(batch)[0].numpy() for batch in (larger, style[None]))
        restyled = np.empty_like(content)
        for channel, (mine, theirs) in enumerate(zip(content, wanted, strict=True)):
            deviation, target = (np.sqrt(values.var(ddof=1) + 1e-5) for values in (mine, theirs))
            restyled[channel] = (mine - mine.mean()) / deviation * target + theirs.mean()
        mixed = strength * restyled + (1 - strength) * content
        drawn = decoder(torch.from_numpy(mixed)[None])
        return functional.adaptive_avg_pool2d(drawn, image.shape[1:])[0].clamp(0, 1)


def test_against_one_picture_at_a_time(networks):
    styles = {"a": torch.rand(3, 24, 40), "b": torch.rand(3, 32, 32)}
    mutation = Stylise(*networks, styles, strengths=(0.4, 1.0), side=64)
    assert mutation.parameters == (("a", 0.4), ("a", 1.0), ("b", 0.4), ("b", 1.0))
    images = torch.rand(4, 3, 32, 32)
    found = mutation.apply(images, MutationDraw.of_batch(np.array([3, 0, 2, 1])))
    for row, (name, strength) in enumerate([("b", 1.0), ("a", 0.4), ("b", 0.4), ("a", 1.0)]):
        wanted = plain(*networks, images[row], styles[name], strength, 64)
        torch.testing.assert_close(found[row], wanted, atol=1e-5, rtol=1e-5)


def test_grey_and_odd_sizes(networks):
    mutation = Stylise(*networks, {"a": torch.rand(3, 16, 16)}, strengths=(0.5,), side=32)
    for shape in ((1, 8, 8), (3, 30, 50), (1, 9, 13), (3, 40, 33)):
        found = mutation.apply(torch.rand(2, *shape), MutationDraw.of_batch(np.zeros(2, dtype=int)))
        assert found.shape == (2, *shape)
    with pytest.raises(InputError, match="4 channels: expected 1 or 3"):
        mutation.apply(torch.rand(1, 4, 8, 8), MutationDraw.of_batch(np.zeros(1, dtype=int)))


def test_the_shipped_styles_and_a_folder_of_ones_own(tmp_path):
    shipped = style_folder()
    assert len(shipped) == 4
    assert all(image.shape == (3, 128, 128) and 0 <= image.min() < image.max() <= 1 for image in shipped.values())
    Image.new("RGB", (600, 300), (255, 0, 0)).save(tmp_path / "red.jpg")
    (tmp_path / "notes.txt").write_text("not a picture")
    mine = style_folder(tmp_path)
    assert list(mine) == ["red"]
    assert mine["red"].shape == (3, 128, 256)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"broken\.png: not an image"):
        style_folder(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        style_folder(tmp_path / "nowhere")


def test_wrong_settings(networks):
    with pytest.raises(InputError, match=r"strength 1\.5: expected a number from 0 to 1"):
        Stylise(*networks, {"a": torch.rand(3, 16, 16)}, strengths=(1.5,))
    with pytest.raises(InputError, match="side=8: expected at least 16 pixels"):
        Stylise(*networks, {"a": torch.rand(3, 16, 16)}, side=8)
    same = [Stylise(*networks, {"a": torch.full((3, 16, 16), shade)}).identity() for shade in (0.1, 0.2)]
    assert same[0] != same[1]

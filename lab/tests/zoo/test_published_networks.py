"""Inception, AdaIN and MobileNetV2 with their published weights, compared with their files and with plain sense."""

import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from neuralcov.core.errors import InputError
from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import cache_folder
from neuralcov_lab.networks.adain import AdaIN, match_moments
from neuralcov_lab.networks.imagenet import MEAN, STD


def test_inception_equals_the_program_in_its_file(real):
    real("inception")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        program = torch.jit.load(cache_folder() / "inception" / "default_1.pt", map_location="cpu").eval()
    images = torch.rand(2, 3, 299, 299, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        ours, theirs = zoo.inception()(images), program(images)
    assert ours.shape == (2, 2048)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_inception_enlarges_small_images(real):
    real("inception")
    pixels = torch.rand(1, 3, 32, 32)
    large = functional.interpolate(pixels, (299, 299), mode="bilinear", align_corners=False) * 2 - 1
    network = zoo.inception()
    torch.testing.assert_close(network.of_pixels(pixels), network(large), rtol=1e-4, atol=1e-4)
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_inception_refuses_other_sizes():
    with pytest.raises(InputError, match=r"\(1, 3, 32, 32\): expected \(batch, 3, 299, 299\)"):
        zoo.Inception()(torch.zeros(1, 3, 32, 32))


def test_inception_missing_or_damaged(tmp_path, empty_cache):
    with pytest.raises(DataError, match="run `neuralcov data get inception`"):
        zoo.inception()
    with pytest.raises(DataError, match=r"neither default_1\.pt nor inception\.safetensors"):
        zoo.inception(tmp_path)
    (tmp_path / "default_1.pt").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match="not a TorchScript file, or cut short"):
        zoo.inception(tmp_path)


def test_inception_normalises_after_every_convolution(tmp_path):
    generator = torch.Generator().manual_seed(0)
    state = {}
    for name, layer in zoo.Inception().named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            width = len(layer.weight)
            state |= {
                f"{name}.weight": torch.randn(layer.weight.shape, generator=generator).half(),
                f"{name}.beta": torch.randn(width, generator=generator),
                f"{name}.mean": torch.randn(width, generator=generator),
                # Small enough for the constant added to it to count.
                f"{name}.var": torch.rand(width, generator=generator) / 100,
            }
    save_file(state, tmp_path / "inception.safetensors")
    name = "mixed_4.tower.conv_1"
    layer = zoo.inception(tmp_path).get_submodule(name)
    maps = torch.randn(2, layer.in_channels, 9, 9, generator=generator)
    plain = functional.conv2d(maps, state[f"{name}.weight"].float(), padding=layer.padding)
    normal = functional.batch_norm(
        plain, state[f"{name}.mean"], state[f"{name}.var"], bias=state[f"{name}.beta"], eps=1e-3
    )
    torch.testing.assert_close(layer(maps), normal.relu(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"conv.weight": torch.zeros(32, 3, 3, 3)}, "layer 'conv' has weight, expected weight, beta, mean and var"),
        (
            {"fc.weight": torch.zeros(2, 3, 1, 1), **{f"fc.{part}": torch.ones(2) for part in ("beta", "mean", "var")}},
            "Error",
        ),
    ],
    ids=["part missing", "other layers"],
)
def test_inception_refuses_other_weights(tmp_path, state, expected):
    save_file(state, tmp_path / "inception.safetensors")
    with pytest.raises(DataError, match=f"these are not the weights of Inception: {expected}"):
        zoo.inception(tmp_path)


def test_adain_draws_the_content_again(real):
    real("adain", "cifar10")
    content = zoo.data("cifar10", "test").pixels(slice(0, 8))
    large = functional.interpolate(content, (128, 128), mode="bilinear")
    with torch.no_grad():
        drawn = zoo.adain()(large)
    assert drawn.shape == large.shape
    error = (drawn - large).square().mean()
    # An image of constant colour, the best that ignores the content, misses by the variance.
    assert error < 0.25 * large.var(dim=(2, 3)).mean()


def test_adain_takes_the_colours_of_the_style(real):
    real("adain")
    content = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    red = torch.tensor([0.9, 0.1, 0.1])[None, :, None, None] + 0.05 * torch.rand(1, 3, 64, 64)
    network = zoo.adain()
    with torch.no_grad():
        plain, full, half = network(content), network(content, red), network(content, red, strength=0.5)
    colours = [image.mean((2, 3))[0] for image in (plain, half, full)]
    redness = [float(colour[0] - colour[1]) for colour in colours]
    assert redness[0] < redness[1] < redness[2]


def test_match_moments_agrees_with_instance_norm():
    features, like = torch.randn(2, 5, 6, 6), torch.randn(2, 5, 4, 4) * 3 + 1
    variance, mean = torch.var_mean(like, (2, 3), keepdim=True)
    # PyTorch divides by n = 36, we by n − 1, as the published code does.
    expected = functional.instance_norm(features) * (35 / 36) ** 0.5 * variance.sqrt() + mean
    torch.testing.assert_close(match_moments(features, like), expected, rtol=1e-3, atol=1e-3)


def test_adain_keeps_odd_sizes_and_refuses_strengths(tmp_path):
    network = AdaIN().eval()
    with torch.no_grad():
        assert network(torch.rand(1, 3, 37, 50), torch.rand(1, 3, 32, 32)).shape == (1, 3, 37, 50)
    with pytest.raises(InputError, match="strength=2: expected a number from 0 to 1"):
        network(torch.rand(1, 3, 32, 32), torch.rand(1, 3, 32, 32), strength=2)


def test_adain_refuses_other_files(tmp_path):
    with pytest.raises(DataError, match=r"vgg_normalized\.pth: there is no such file"):
        zoo.adain(tmp_path)
    torch.save({"0.weight": torch.zeros(1)}, tmp_path / "vgg_normalized.pth")
    with pytest.raises(DataError, match="not the published AdaIN weights"):
        zoo.adain(tmp_path)
    (tmp_path / "vgg_normalized.pth").write_bytes(b"cut short")
    with pytest.raises(DataError, match="not the published AdaIN weights, or cut short"):
        zoo.adain(tmp_path)


def test_mobilenet_of_imagenet_knows_a_flower_and_a_temple(real):
    real("mobilenet_v2-imagenet")
    photographs = pytest.importorskip("sklearn.datasets").load_sample_images().images
    network, tops = zoo.mobilenet_v2_imagenet(), []
    for photograph in photographs:
        pixels = torch.tensor(photograph).permute(2, 0, 1)[None].float() / 255
        mean, std = (torch.tensor(each).reshape(1, 3, 1, 1) for each in (MEAN, STD))
        tops.append(network((pixels - mean) / std).topk(5).indices[0].tolist())
    # Palace and stupa; the flower is none of ImageNet's, but its seeds look like honeycomb.
    assert {698, 832} <= set(tops[0])
    assert tops[1][0] == 599


def test_mobilenet_of_imagenet_enlarges_small_images(real):
    real("mobilenet_v2-imagenet")
    network, small = zoo.mobilenet_v2_imagenet(), torch.randn(1, 3, 32, 32)
    large = functional.interpolate(small, (224, 224), mode="bilinear", align_corners=False)
    torch.testing.assert_close(network(small), network(large))


def test_mobilenet_of_imagenet_needs_its_weights(tmp_path, empty_cache):
    with pytest.raises(DataError, match="run `neuralcov data get mobilenet_v2-imagenet`"):
        zoo.build("mobilenet_v2_imagenet")
    (tmp_path / "mobilenet_v2-b0353104.pth").write_bytes(b"nothing")
    with pytest.raises(DataError, match="these are not the weights of MobileNetV2"):
        zoo.mobilenet_v2_imagenet(tmp_path)

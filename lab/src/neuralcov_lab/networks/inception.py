"""Inception v3 (Szegedy et al., 2016) without its last layer: the features behind FID and Inception scores.

The published weights are those of 2015, whose network differs from later ones in leaving padding out of averages
and in a max-pool in the last block. Layers are named as in the file that carries them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights

from neuralcov.core.errors import InputError
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import require

SIDE = 299
FEATURES = 2048
_PREFIX = "net.layers."
_EPSILON = 1e-3


def inception(folder: Path | None = None) -> Inception:
    """Return the feature network with its published weights, in eval mode.

    Args:
        folder: where ``default_1.pt`` or ``inception.safetensors`` lies; by default the cache, which
            ``neuralcov data get inception`` fills.
    """
    place = require("inception", folder)
    plain, script = place / "inception.safetensors", place / "default_1.pt"
    if not plain.is_file() and not script.is_file():
        raise DataError(f"{place}: has neither {script.name} nor {plain.name}; run: neuralcov data get inception")
    state = load_file(plain) if plain.is_file() else _state_of_script(script)
    network = Inception()
    try:
        network.load_state_dict(_folded({name.removeprefix(_PREFIX): value for name, value in state.items()}))
    except RuntimeError as error:
        raise DataError(f"{place}: these are not the weights of Inception: {str(error).splitlines()[0]}") from error
    return network.eval().requires_grad_(False)


def _folded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convolutions with the batch normalisation that follows them multiplied in, since its statistics are fixed."""
    layers: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        layer, _, part = name.rpartition(".")
        layers.setdefault(layer, {})[part] = value.double()
    folded: dict[str, Tensor] = {}
    for layer, parts in layers.items():
        if set(parts) != {"weight", "beta", "mean", "var"}:
            raise RuntimeError(f"layer {layer!r} has {', '.join(parts)}, expected weight, beta, mean and var")
        weight, bias = fuse_conv_bn_weights(
            parts["weight"], None, parts["mean"], parts["var"], _EPSILON, None, parts["beta"]
        )
        folded |= {f"{layer}.weight": weight.float(), f"{layer}.bias": bias.float()}
    return folded


def _state_of_script(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a TorchScript file; its program is not run."""
    with warnings.catch_warnings():
        # Deprecated, but nothing else reads such a file.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            script: Any = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise DataError(
                f"{path}: not a TorchScript file, or cut short; run: neuralcov data get inception"
            ) from error
    return cast(dict[str, Tensor], script.state_dict())


class Inception(nn.Module):
    """``(batch, 3, 299, 299)`` images in [−1, 1] → ``(batch, 2048)`` features."""

    def __init__(self) -> None:
        super().__init__()
        self.input_shape = (3, SIDE, SIDE)
        self.conv = _Conv(3, 32, 3, stride=2, padding=0)
        self.conv_1 = _Conv(32, 32, 3, padding=0)
        self.conv_2 = _Conv(32, 64, 3)
        self.conv_3 = _Conv(64, 80, 1)
        self.conv_4 = _Conv(80, 192, 3, padding=0)
        self.mixed = _block_a(192, 32)
        self.mixed_1 = _block_a(256, 64)
        self.mixed_2 = _block_a(288, 64)
        self.mixed_3 = _block_b(288)
        self.mixed_4 = _block_c(128)
        self.mixed_5 = _block_c(160)
        self.mixed_6 = _block_c(160)
        self.mixed_7 = _block_c(192)
        self.mixed_8 = _block_d()
        self.mixed_9 = _BlockE(1280, nn.AvgPool2d(3, 1, 1, count_include_pad=False))
        self.mixed_10 = _BlockE(2048, nn.MaxPool2d(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Features of images of exactly 299×299 pixels; ``of_pixels`` takes any size."""
        if images.dim() != 4 or images.shape[1:] != self.input_shape:
            raise InputError(f"images of shape {tuple(images.shape)}: expected (batch, 3, {SIDE}, {SIDE})")
        # With the channels of a pixel side by side it is 1.3 to 1.6 times as fast on a CPU, 1.13 times on an H200.
        images = images.contiguous(memory_format=torch.channels_last)
        maps = functional.max_pool2d(self.conv_2(self.conv_1(self.conv(images))), 3, 2)
        maps = functional.max_pool2d(self.conv_4(self.conv_3(maps)), 3, 2)
        for number in range(11):
            maps = self.get_submodule(f"mixed_{number}" if number else "mixed")(maps)
        return maps.mean((2, 3), dtype=torch.float32)

    def of_pixels(self, pixels: Tensor) -> Tensor:
        """Features of images in [0, 1] of any size, enlarged bilinearly."""
        size = (SIDE, SIDE)
        enlarged = functional.interpolate(pixels.float(), size, mode="bilinear", align_corners=False, antialias=True)
        return cast(Tensor, self(enlarged * 2 - 1))


class _Conv(nn.Conv2d):
    """Convolution and ReLU; padded to keep the size unless told otherwise."""

    def __init__(
        self, channels: int, width: int, kernel: int | tuple[int, int], stride: int = 1, padding: int | None = None
    ) -> None:
        height, breadth = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        around = (height // 2, breadth // 2) if padding is None else (padding, padding)
        super().__init__(channels, width, (height, breadth), stride, around)

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(super().forward(input), inplace=True)


class _Branches(nn.Module):
    """Its children side by side, their channels one after the other."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([branch(maps) for branch in self.children()], 1)


def _tower(*convolutions: _Conv) -> nn.Sequential:
    tower = nn.Sequential()
    for number, convolution in enumerate(convolutions):
        tower.add_module(f"conv_{number}" if number else "conv", convolution)
    return tower


def _averaged(convolution: _Conv) -> nn.Sequential:
    tower = nn.Sequential()
    tower.add_module("pool", nn.AvgPool2d(3, 1, 1, count_include_pad=False))
    tower.add_module("conv", convolution)
    return tower


def _block_a(channels: int, pooled: int) -> nn.Module:
    return _Branches(
        conv=_Conv(channels, 64, 1),
        tower=_tower(_Conv(channels, 48, 1), _Conv(48, 64, 5)),
        tower_1=_tower(_Conv(channels, 64, 1), _Conv(64, 96, 3), _Conv(96, 96, 3)),
        tower_2=_averaged(_Conv(channels, pooled, 1)),
    )


def _block_b(channels: int) -> nn.Module:
    return _Branches(
        conv=_Conv(channels, 384, 3, stride=2, padding=0),
        tower=_tower(_Conv(channels, 64, 1), _Conv(64, 96, 3), _Conv(96, 96, 3, stride=2, padding=0)),
        pool=nn.MaxPool2d(3, 2),
    )


def _block_c(width: int) -> nn.Module:
    row, column = (1, 7), (7, 1)
    tower = (_Conv(768, width, 1), _Conv(width, width, row), _Conv(width, 192, column))
    longer = (_Conv(768, width, 1), _Conv(width, width, column), _Conv(width, width, row), _Conv(width, width, column))
    return _Branches(
        conv=_Conv(768, 192, 1),
        tower=_tower(*tower),
        tower_1=_tower(*longer, _Conv(width, 192, row)),
        tower_2=_averaged(_Conv(768, 192, 1)),
    )


def _block_d() -> nn.Module:
    crossed = (_Conv(768, 192, 1), _Conv(192, 192, (1, 7)), _Conv(192, 192, (7, 1)))
    return _Branches(
        tower=_tower(_Conv(768, 192, 1), _Conv(192, 320, 3, stride=2, padding=0)),
        tower_1=_tower(*crossed, _Conv(192, 192, 3, stride=2, padding=0)),
        pool=nn.MaxPool2d(3, 2),
    )


class _BlockE(nn.Module):
    """The widest block, two of whose towers fork at their ends."""

    def __init__(self, channels: int, pool: nn.Module) -> None:
        super().__init__()
        self.conv = _Conv(channels, 320, 1)
        self.tower_conv = _Conv(channels, 384, 1)
        self.tower_mixed_conv = _Conv(384, 384, (1, 3))
        self.tower_mixed_conv_1 = _Conv(384, 384, (3, 1))
        self.tower_1_conv = _Conv(channels, 448, 1)
        self.tower_1_conv_1 = _Conv(448, 384, 3)
        self.tower_1_mixed_conv = _Conv(384, 384, (1, 3))
        self.tower_1_mixed_conv_1 = _Conv(384, 384, (3, 1))
        self.tower_2_pool = pool
        self.tower_2_conv = _Conv(channels, 192, 1)

    def forward(self, maps: Tensor) -> Tensor:
        first = self.tower_conv(maps)
        second = self.tower_1_conv_1(self.tower_1_conv(maps))
        parts = (
            self.conv(maps),
            self.tower_mixed_conv(first),
            self.tower_mixed_conv_1(first),
            self.tower_1_mixed_conv(second),
            self.tower_1_mixed_conv_1(second),
            self.tower_2_conv(self.tower_2_pool(maps)),
        )
        return torch.cat(parts, 1)

"""A class-conditional residual generator with BigGAN's CIFAR-10 layout (Brock et al., 2019), and its discriminator."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

from neuralcov.core.errors import InputError

_SIDE = 4
_BLOCKS = 3


class Generator(nn.Module):
    """Images of 32×32 pixels in [−1, 1] from noise and a class: 11 layers, 6,403 neurons.

    A linear layer to 4×4×width, three residual blocks that each double the side, and an output convolution.
    The class enters through the gains and offsets of batch normalisation, which are embeddings and hence no
    layers of their own.

    Args:
        num_classes: classes to draw from.
        noise: length of the noise vector.
        width: channels of every block.
    """

    def __init__(self, num_classes: int = 10, noise: int = 128, width: int = 256) -> None:
        super().__init__()
        for name, value in (("num_classes", num_classes), ("noise", noise), ("width", width)):
            if value < 1:
                raise InputError(f"generator({name}={value}): {name} must be at least 1")
        self.input_shape = (noise,)
        self.num_classes, self.width = num_classes, width
        self.linear = nn.Linear(noise, _SIDE * _SIDE * width)
        self.blocks = nn.ModuleList(UpBlock(width, num_classes) for _ in range(_BLOCKS))
        self.norm = nn.BatchNorm2d(width)
        self.output = nn.Conv2d(width, 3, 3, padding=1)
        _initialise(self)

    def forward(self, noise: Tensor, labels: Tensor | None = None) -> Tensor:
        """``(batch, 3, 32, 32)`` images of ``(batch, noise)`` vectors and ``(batch,)`` classes, class 0 by default."""
        if labels is None:
            labels = torch.zeros(noise.shape[0], dtype=torch.long, device=noise.device)
        features = self.linear(noise).reshape(-1, self.width, _SIDE, _SIDE)
        features = features.contiguous(memory_format=_memory_format(self.output))
        for block in self.blocks:
            features = block(features, labels)
        return torch.tanh(self.output(functional.relu(self.norm(features))))

    @torch.no_grad()
    def sample(self, labels: Tensor, random: torch.Generator | None = None) -> Tensor:
        """Images of these classes from normal noise, with random numbers of ``random`` (on the CPU)."""
        noise = torch.randn(labels.shape[0], self.linear.in_features, generator=random)
        return cast(Tensor, self(noise.to(labels.device, self.linear.weight.dtype), labels))


class UpBlock(nn.Module):
    """Two convolutions behind conditional normalisation, at twice the side, around a 1×1 shortcut."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.norm1 = ConditionalNorm(width, num_classes)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = ConditionalNorm(width, num_classes)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(width, width, 1)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the same number of channels, twice as high and wide."""
        changed = functional.relu(self.norm1(features, labels))
        changed = self.conv1(functional.interpolate(changed, scale_factor=2))
        changed = self.conv2(functional.relu(self.norm2(changed, labels)))
        # A 1×1 convolution and nearest-neighbour enlarging commute; this order costs a quarter.
        return cast(Tensor, changed + functional.interpolate(self.shortcut(features), scale_factor=2))


class ConditionalNorm(nn.Module):
    """Batch normalisation whose gain and offset depend on the class (Dumoulin et al., 2017)."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width, affine=False)
        self.gain = nn.Embedding(num_classes, width)
        self.offset = nn.Embedding(num_classes, width)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """Features of mean ``offset`` and deviation ``1 + gain`` of their class."""
        normal = self.norm(features)
        gain = (1 + self.gain(labels))[:, :, None, None].to(normal.dtype)
        offset = self.offset(labels)[:, :, None, None].to(normal.dtype)
        return cast(Tensor, normal * gain + offset)


class Discriminator(nn.Module):
    """One score per image and class: a residual network with spectral normalisation and label projection.

    The published companion of the generator (Miyato and Koyama, 2018): four blocks of ``width`` channels, the
    first two of which halve the side.
    """

    def __init__(self, num_classes: int = 10, width: int = 256) -> None:
        super().__init__()
        self.input_shape = (3, 32, 32)
        self.blocks = nn.ModuleList(
            [
                DownBlock(3, width, halve=True, first=True),
                DownBlock(width, width, halve=True),
                DownBlock(width, width),
                DownBlock(width, width),
            ]
        )
        self.linear = nn.Linear(width, 1)
        self.classes = nn.Embedding(num_classes, width)
        _initialise(self)
        for module in self._normalised():
            spectral_norm(module)
        self.register_load_state_dict_pre_hook(_rename_spectral_vectors)  # type: ignore[no-untyped-call]

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """``(batch,)`` scores of images in [−1, 1], high for real ones of the class (0 by default)."""
        if labels is None:
            labels = torch.zeros(images.shape[0], dtype=torch.long, device=images.device)
        with parametrize.cached():
            with torch.autocast(images.device.type, enabled=False):
                # Normalise every weight once, in full precision whatever the pass runs in; layers find it cached.
                for module in self._normalised():
                    _ = module.weight
            return self._score(images, labels)

    def _score(self, images: Tensor, labels: Tensor) -> Tensor:
        features = images
        for block in self.blocks:
            features = block(features)
        with torch.autocast(images.device.type, enabled=False):
            # Sums over positions and channels, on which the loss hinges, in full precision.
            features = functional.relu(features.to(self.linear.weight.dtype)).sum((2, 3))
            return cast(Tensor, self.linear(features)[:, 0] + (self.classes(labels) * features).sum(1))

    def _normalised(self) -> list[nn.Module]:
        return [module for module in self.modules() if isinstance(module, (nn.Conv2d, nn.Linear, nn.Embedding))]


class DownBlock(nn.Module):
    """Two 3×3 convolutions around a 1×1 shortcut, averaged over 2×2 where the side is halved."""

    def __init__(self, channels: int, width: int, *, halve: bool = False, first: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, width, 1) if halve or channels != width else None
        self.halve, self.first = halve, first

    def forward(self, features: Tensor) -> Tensor:
        """Features of ``width`` channels."""
        # The first block sees pixels, of which a ReLU would throw the dark half away.
        changed = features if self.first else functional.relu(features)
        changed = self.conv2(functional.relu(self.conv1(changed)))
        if self.halve:
            changed, features = functional.avg_pool2d(changed, 2), functional.avg_pool2d(features, 2)
        # As above: averaging first commutes with the 1×1 convolution and costs a quarter.
        return changed + (features if self.shortcut is None else self.shortcut(features))


def _rename_spectral_vectors(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Load weights written when spectral normalisation was our own: its vectors were named ``left`` and ``right``."""
    for name in list(state):
        for old, new in ((".0.left", ".0._u"), (".0.right", ".0._v")):
            if name.startswith(prefix) and name.endswith(f".parametrizations.weight{old}"):
                state[name.removesuffix(old) + new] = state.pop(name)


def _initialise(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight) if isinstance(network, Generator) else nn.init.xavier_uniform_(module.weight)


def _memory_format(layer: nn.Conv2d) -> torch.memory_format:
    """Return how a convolution's weights lie in memory, which is how it likes its input."""
    channels_last = layer.weight.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if channels_last and not layer.weight.is_contiguous() else torch.contiguous_format

"""The UCI digits, shipped with the package, and the small convolutional network the demo trains on them."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from neuralcov.core.errors import InputError
from neuralcov.coverage.loaders import tracked
from neuralcov.sources.samples import Samples

_TRAINING = 1200


def digits(split: str = "test") -> Samples:
    """Return 1,797 handwritten digits of 8×8 pixels: 1,200 ``train`` and 597 ``test``, drawn once with seed 0.

    >>> len(digits("train")), len(digits("test"))
    (1200, 597)
    """
    if split not in ("train", "test"):
        raise InputError(f"digits has no split {split!r}: expected 'train' or 'test'")
    with files("neuralcov.demo").joinpath("digits.npz").open("rb") as file:
        content = np.load(file)
        images, labels = torch.from_numpy(content["images"]), torch.from_numpy(content["labels"]).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    rows = order[:_TRAINING] if split == "train" else order[_TRAINING:]
    names = tuple(str(digit) for digit in range(10))
    return Samples(f"digits {split}", images[rows, None], labels[rows], names, levels=16)


def train_digits(epochs: int = 12, seed: int = 0, progress: bool | None = None) -> DigitsNet:
    """Return a ``DigitsNet`` trained on the training split, in a few seconds on a CPU."""
    samples = digits("train")
    inputs, labels = samples.pixels(), samples.labels
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = DigitsNet()
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in tracked(range(epochs), "training", progress):
        order = torch.randperm(len(samples), generator=generator)
        for rows in torch.split(order, 64):
            optimiser.zero_grad()
            functional.cross_entropy(net(inputs[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return net.eval()


class DigitsNet(nn.Module):
    """Two convolutions and two linear layers: 4 layers, 122 neurons."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.input_shape = (1, 8, 8)
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits of ``(batch, 1, 8, 8)`` images."""
        features = functional.relu(self.conv1(images))
        features = functional.max_pool2d(functional.relu(self.conv2(features)), 2)
        return self.fc2(functional.relu(self.fc1(features.flatten(1))))  # type: ignore[no-any-return]

"""Small networks that are trained on the spot, with checkpoints on the way."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples

_BATCH = 128


class SmallCNN(nn.Module):
    """Four convolutions and two linear layers, for grey or coloured images of any size from 8×8."""

    def __init__(self, channels: int, classes: int, side: int, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=1 if side <= 16 else 2, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.conv4 = nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(4 * width * 4, 64)
        self.fc2 = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits."""
        maps = functional.relu(self.conv2(functional.relu(self.conv1(images))))
        maps = functional.relu(self.conv4(functional.relu(self.conv3(maps))))
        logits: Tensor = self.fc2(functional.relu(self.fc1(functional.adaptive_avg_pool2d(maps, 2).flatten(1))))
        return logits


class SmallMLP(nn.Module):
    """Five linear layers, for inputs of any one shape."""

    def __init__(self, inputs: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)
        self.fc3 = nn.Linear(width, width)
        self.fc4 = nn.Linear(width, width)
        self.fc5 = nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits."""
        passed = inputs.flatten(1)
        for layer in (self.fc1, self.fc2, self.fc3, self.fc4):
            passed = functional.relu(layer(passed))
        logits: Tensor = self.fc5(passed)
        return logits


def small_network(kind: str, samples: Samples, seed: int) -> nn.Module:
    """Build a small network for some samples, ``cnn`` or ``mlp``."""
    shape = samples.inputs.shape[1:]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "cnn":
            return SmallCNN(shape[0], len(samples.classes), shape[2])
        if kind == "mlp":
            return SmallMLP(shape.numel(), len(samples.classes))
    raise InputError(f"there is no small network {kind!r}: there are 'cnn' and 'mlp'")


def train_small(
    kind: str, samples: Samples, steps: int, seed: int = 0, checkpoints: Sequence[int] = ()
) -> list[nn.Module]:
    """Train a small network for so many steps; return it as it was after each of the checkpoints, and at the end.

    Args:
        kind: ``cnn`` or ``mlp``.
        samples: what to train with; the network goes to their device.
        steps: batches of 128 inputs.
        seed: of weights and order.
        checkpoints: numbers of steps.
    """
    device = samples.inputs.device
    net = small_network(kind, samples, seed).to(device)
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
    random = torch.Generator().manual_seed(seed)
    kept: list[nn.Module] = []
    order = torch.randperm(len(samples), generator=random)
    for step in range(1, steps + 1):
        if len(order) < min(_BATCH, len(samples)):
            order = torch.randperm(len(samples), generator=random)
        rows, order = order[:_BATCH].to(device), order[_BATCH:]
        optimiser.zero_grad()
        logits = net(samples.prepare(samples.pixels(rows)))
        functional.cross_entropy(logits, samples.labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if step in checkpoints and step < steps:
            kept.append(deepcopy(net).eval())
    return [*kept, net.eval()]

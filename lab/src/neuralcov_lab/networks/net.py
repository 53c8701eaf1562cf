"""``Net``, a small network that ends in two neurons, extended to a VAE, a class-conditional VAE and a classifier.

The three share the structure and differ in what follows the two neurons, so that a plot of the two shows how
differently networks of one shape can see the same digits.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from neuralcov.core.errors import InputError

_SIDE = 28


class Net(nn.Module):
    """Two convolutions and two linear layers, of which ``last`` has the two neurons.

    Args:
        width: channels of the first convolution; the second has twice as many.
        hidden: neurons of the first linear layer.
    """

    def __init__(self, width: int = 32, hidden: int = 256) -> None:
        super().__init__()
        self.input_shape = (1, _SIDE, _SIDE)
        self.conv1 = nn.Conv2d(1, width, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.hidden = nn.Linear(2 * width * 7 * 7, hidden)
        self.last = nn.Linear(hidden, 2)

    def features(self, images: Tensor) -> Tensor:
        """Return what the hidden layer passes on, ``(batch, hidden)``."""
        maps = functional.relu(self.conv2(functional.relu(self.conv1(images))))
        return functional.relu(self.hidden(maps.flatten(1)))

    def forward(self, images: Tensor) -> Tensor:
        """Return the two neurons, ``(batch, 2)``, of ``(batch, 1, 28, 28)`` images in [0, 1]."""
        return cast(Tensor, self.last(self.features(images)))


class Classifier(nn.Module):
    """``Net`` and a linear layer from its two neurons to the classes."""

    def __init__(self, num_classes: int = 10, width: int = 32, hidden: int = 256) -> None:
        super().__init__()
        if num_classes < 1:
            raise InputError(f"net_classifier(num_classes={num_classes}): num_classes must be at least 1")
        self.net = Net(width, hidden)
        self.input_shape = self.net.input_shape
        self.fc = nn.Linear(2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        return cast(Tensor, self.fc(self.net(images)))


class VAE(nn.Module):
    """A variational auto-encoder (Kingma and Welling, 2014) whose latent mean is ``Net``'s two neurons."""

    def __init__(self, width: int = 32, hidden: int = 256) -> None:
        super().__init__()
        self.net = Net(width, hidden)
        self.input_shape = self.net.input_shape
        self.log_variance = nn.Linear(hidden, 2)
        self.decoder = Decoder(2, width, hidden)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the pixels, and mean and log-variance of the latent code.

        The code is drawn in training and is the mean otherwise.
        """
        features = self.net.features(images)
        mean, log_variance = self.net.last(features), self.log_variance(features)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp() if self.training else mean
        return self.decode(code, labels), mean, log_variance

    def decode(self, code: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits of the pixels for ``(batch, 2)`` latent codes."""
        return cast(Tensor, self.decoder(code))


class ConditionalVAE(VAE):
    """A VAE whose decoder is told the class (Sohn et al., 2015), so that the code need not hold it."""

    def __init__(self, num_classes: int = 10, width: int = 32, hidden: int = 256) -> None:
        super().__init__(width, hidden)
        if num_classes < 1:
            raise InputError(f"cvae(num_classes={num_classes}): num_classes must be at least 1")
        self.num_classes = num_classes
        self.decoder = Decoder(2 + num_classes, width, hidden)

    def decode(self, code: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits of the pixels for latent codes and their classes; without classes, of none in particular."""
        told = code.new_zeros(code.shape[0], self.num_classes)
        if labels is not None:
            told = functional.one_hot(labels.long(), self.num_classes).to(code.dtype)
        return cast(Tensor, self.decoder(torch.cat([code, told], 1)))


class Decoder(nn.Module):
    """``Net`` backwards: from a code to the logits of 28×28 pixels."""

    def __init__(self, code: int, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(code, hidden)
        self.spread = nn.Linear(hidden, 2 * width * 7 * 7)
        self.conv1 = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.conv2 = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, code: Tensor) -> Tensor:
        """``(batch, 1, 28, 28)`` logits."""
        maps = functional.relu(self.spread(functional.relu(self.hidden(code))))
        return cast(Tensor, self.conv2(functional.relu(self.conv1(maps.reshape(maps.shape[0], -1, 7, 7)))))

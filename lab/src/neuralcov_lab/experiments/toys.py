"""Small stand-ins that need no download: a language of three dozen words, rows of numbers, networks for them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from neuralcov_lab import zoo

WORDS, STEPS = 40, 12
_CLASSES = ("negative", "positive")
_FEELING = 10


def toy_reviews(count: int, seed: int = 0) -> zoo.Samples:
    """Texts of 4 to 12 words; tokens 2 to 11 speak for one class, 12 to 21 for the other, the rest for neither.

    >>> reviews = toy_reviews(6)
    >>> reviews.labels.tolist(), reviews.inputs.shape
    ([0, 1, 0, 1, 0, 1], torch.Size([6, 12]))
    """
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    lengths = torch.randint(4, STEPS + 1, (count,), generator=random)
    neutral = torch.randint(2 + 2 * _FEELING, WORDS, (count, STEPS), generator=random)
    feeling = 2 + _FEELING * labels[:, None] + torch.randint(0, _FEELING, (count, STEPS), generator=random)
    tokens = torch.where(torch.rand((count, STEPS), generator=random) < 0.5, feeling, neutral)
    tokens = tokens.masked_fill(torch.arange(STEPS) >= lengths[:, None], 0)
    words = ("<pad>", "<unk>", *(f"word{number}" for number in range(2, WORDS)))
    return zoo.Samples("toy reviews", tokens, labels, _CLASSES, lengths=lengths, words=words)


def toy_rows(count: int, seed: int = 0) -> zoo.Samples:
    """Rows of 8 numbers in 5 classes, each normal around a point of its own.

    >>> rows = toy_rows(10)
    >>> rows.labels.tolist(), rows.inputs.shape
    ([0, 1, 2, 3, 4, 0, 1, 2, 3, 4], torch.Size([10, 8]))
    """
    centres = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(count) % len(centres)
    noise = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed + 1))
    return zoo.Samples("toy rows", centres[labels] + 0.4 * noise, labels, tuple("abcde"))


def toy_classifier(network: str, samples: zoo.Samples, epochs: int = 6, seed: int = 0, **arguments: int) -> nn.Module:
    """Return a small network of the zoo trained on such samples, in a second or two."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = zoo.build(network, **zoo.arguments_for(network, samples), **arguments)
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(samples)), 50):
                optimiser.zero_grad()
                loss = functional.cross_entropy(net(samples.inputs[rows]), samples.labels[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return net.eval()


def toy_lstm(reviews: zoo.Samples, epochs: int = 6, seed: int = 0) -> nn.Module:
    """Return a small network trained on them, in a second or two."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = zoo.SentimentLSTM(vocabulary=WORDS, embedding=8, hidden=16, steps=STEPS, dropout=0.0)
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(reviews)), 50):
                lengths = None if reviews.lengths is None else reviews.lengths[rows]
                logits = net(reviews.inputs[rows], lengths)[:, 0]
                optimiser.zero_grad()
                loss = functional.binary_cross_entropy_with_logits(logits, reviews.labels[rows].float())
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return net.eval()


def toy_generator(seed: int = 0) -> zoo.Generator:
    """Return a narrow generator that was not trained, with classes that differ."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = zoo.Generator(noise=16, width=8)
        for module in net.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, 0.0, 0.5)
    return net.eval()


def toy_two_neurons(kind: str, epochs: int = 8, seed: int = 0) -> tuple[nn.Module, zoo.Samples]:
    """Return a small network that ends in two neurons, trained on the shipped digits at 28×28, and the digits to show.

    Args:
        kind: ``net_classifier``, ``vae`` or ``cvae``.
        epochs: passes over the training digits.
        seed: of weights and order.
    """
    train, test = (_enlarged(zoo.digits(split)) for split in ("train", "test"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = zoo.build(kind, width=8, hidden=32)
        optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
        for _ in range(epochs):
            for rows in torch.split(torch.randperm(len(train)), 50):
                optimiser.zero_grad()
                _loss(net, train.inputs[rows], train.labels[rows]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return net.eval(), test


def _enlarged(samples: zoo.Samples) -> zoo.Samples:
    pixels = functional.interpolate(samples.pixels(), (28, 28), mode="bilinear", align_corners=False)
    return zoo.Samples(samples.name, pixels, samples.labels, samples.classes)


def _loss(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if isinstance(net, zoo.Classifier):
        return functional.cross_entropy(net(images), labels)
    logits, mean, log_variance = net(images, labels)
    drawn = functional.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    loss: torch.Tensor = (drawn + divergence) / len(images)
    return loss

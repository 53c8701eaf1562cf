"""Train networks of the zoo on the spot, in a minute on a CPU, with checkpoints on the way."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import nn
from torch.nn import functional

from neuralcov.sources.samples import Samples
from neuralcov_lab import zoo

_BATCH = 128


def train_on_the_spot(
    network: str, samples: Samples, steps: int, seed: int = 0, checkpoints: Sequence[int] = ()
) -> list[nn.Module]:
    """Train a network for so many steps; return it as it was after each of the checkpoints, and at the end.

    Args:
        network: of the zoo.
        samples: what to train with; the network goes to their device.
        steps: batches of 128 inputs.
        seed: of weights and order.
        checkpoints: numbers of steps.
    """
    device = samples.inputs.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = zoo.build(network, **zoo.arguments_for(network, samples)).to(device).train()
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

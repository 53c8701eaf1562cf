"""Learning to draw digits again from two numbers: the VAE and its class-conditional sister."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from neuralcov.sources.samples import Samples
from neuralcov_lab.networks import VAE
from neuralcov_lab.training.clock import one_cycle
from neuralcov_lab.training.recipe import Recipe
from neuralcov_lab.training.task import Task, optimiser_for, set_rate

_EVALUATION_BATCH = 1000


class AutoEncoding(Task):
    """The evidence lower bound (Kingma and Welling, 2014): pixels as probabilities, a normal prior for the code."""

    def __init__(self, network: VAE, train: Samples, test: Samples, recipe: Recipe, device: torch.device) -> None:
        self.network = network.to(device)
        self.recipe, self.device = recipe, device
        self.train, self.test = train.to(device), test.to(device)
        self.optimiser = optimiser_for(network, recipe)
        self.parts = {"network": self.network, "optimiser": self.optimiser}
        self.inputs_per_step = recipe.batch_size

    def step(self, rows: Tensor, progress: float) -> Tensor:
        """One batch; the loss is in nats per image."""
        self.network.train()
        set_rate(self.optimiser, self.recipe.learning_rate * one_cycle(progress, self.recipe.warm_up))
        loss = negative_bound(self.network, self.train.pixels(rows), self.train.labels[rows]).mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, final: bool) -> dict[str, float]:
        """The mean bound over the test images at the code's mean, in nats; less is better."""
        self.network.eval()
        total = torch.zeros((), device=self.device)
        for rows in torch.split(torch.arange(len(self.test), device=self.device), _EVALUATION_BATCH):
            total += negative_bound(self.network, self.test.pixels(rows), self.test.labels[rows]).sum()
        return {"nats": float(total) / len(self.test)}

    def result(self) -> nn.Module:
        """The trained network."""
        return self.network


def negative_bound(network: VAE, pixels: Tensor, labels: Tensor) -> Tensor:
    """Per image, how many nats its pixels and its code cost."""
    logits, mean, log_variance = network(pixels, labels)
    drawing = functional.binary_cross_entropy_with_logits(logits, pixels, reduction="none").sum((1, 2, 3))
    code = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
    bound: Tensor = drawing + code
    return bound

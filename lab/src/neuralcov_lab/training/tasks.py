"""Train one step at a time: the base of all tasks, classes (images, reviews), and codes to draw digits from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from neuralcov.sources.samples import Samples
from neuralcov_lab.networks import VAE
from neuralcov_lab.training.augment import TrainingImages, training_inputs
from neuralcov_lab.training.recipe import Recipe
from neuralcov_lab.training.schedule import one_cycle

SomeModule = TypeVar("SomeModule", bound=nn.Module)
_EVALUATION_BATCH = 1000


class Task(ABC):
    """Train a network on its data, one step at a time.

    ``parts`` holds everything with a ``state_dict`` that a checkpoint must keep.
    """

    parts: dict[str, Any]
    inputs_per_step: int

    @abstractmethod
    def step(self, rows: Tensor, progress: float) -> Tensor:
        """Learn from some of the training inputs; the loss stays on the device."""

    @abstractmethod
    def evaluate(self, final: bool) -> dict[str, float]:
        """Judge the network on data it was not trained on; thoroughly, if it is the final one."""

    @abstractmethod
    def result(self) -> nn.Module:
        """Return the network to keep."""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        for name, part in self.parts.items():
            part.load_state_dict(state[name])


def placed(network: SomeModule, device: torch.device) -> SomeModule:
    """Move a network to its device, convolutions with their channels last in memory."""
    moved: Any = network.to(device)
    moved = moved.to(memory_format=torch.channels_last)
    return cast(SomeModule, moved)


def mixed_precision(device: torch.device, wanted: bool = True) -> AbstractContextManager[Any]:
    """Compute in bfloat16 on a GPU, where it is fast; in full precision elsewhere, or where it is not wanted."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted and device.type == "cuda")


def optimiser_for(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Build the recipe's optimiser, with weight decay for weights alone."""
    weights = [parameter for parameter in network.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in network.parameters() if parameter.dim() <= 1]
    groups = [{"params": weights, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    fused = next(network.parameters()).is_cuda
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(groups, recipe.learning_rate, momentum=0.9, nesterov=True, fused=fused)
    return torch.optim.AdamW(groups, recipe.learning_rate, betas=(0.9, 0.99), fused=fused)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group."""
    for group in optimiser.param_groups:
        group["lr"] = rate


class Classification(Task):
    """Learn classes: cross-entropy with smoothed labels, under a one-cycle schedule."""

    def __init__(self, network: nn.Module, train: Samples, test: Samples, recipe: Recipe, device: torch.device) -> None:
        self.network = placed(network, device)
        self.runner: Any = self.network
        self.recipe, self.device = recipe, device
        self.inputs = training_inputs(train, recipe, device)
        self.labels = train.labels.to(device)
        self.test = test.to(device)
        self.optimiser = optimiser_for(network, recipe)
        self.parts = {"network": self.network, "optimiser": self.optimiser}
        self.inputs_per_step = recipe.batch_size
        # Recurrent layers are fast enough as they are, and remember better in full precision.
        self.mixed = isinstance(self.inputs, TrainingImages)

    @override
    def step(self, rows: Tensor, progress: float) -> Tensor:
        self.network.train()
        set_rate(self.optimiser, self.recipe.learning_rate * one_cycle(progress, self.recipe.warm_up))
        with mixed_precision(self.device, self.mixed):
            logits = self.runner(self.inputs.batch(rows))
        loss = _loss(logits.float(), self.labels[rows], self.recipe.smoothing)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimiser.step()
        return loss.detach()

    @override
    def evaluate(self, final: bool) -> dict[str, float]:
        # In full precision at the end.
        return {"accuracy": accuracy(self.network, self.test, mixed=self.mixed and not final)}

    @override
    def result(self) -> nn.Module:
        return self.network


@torch.no_grad()
def accuracy(network: nn.Module, samples: Samples, mixed: bool = False) -> float:
    """Return the share of samples, on the network's own device, that it classifies rightly."""
    was_training = network.training
    network.eval()
    right = torch.zeros((), dtype=torch.long, device=samples.labels.device)
    for inputs, labels in samples.batches(_EVALUATION_BATCH):
        with torch.autocast(labels.device.type, dtype=torch.bfloat16, enabled=mixed and labels.is_cuda):
            logits = network(inputs)
        right += (_classes(logits) == labels).sum()
    network.train(was_training)
    return int(right) / len(samples)


def _loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    if logits.shape[1] > 1:
        return functional.cross_entropy(logits, labels, label_smoothing=smoothing)
    wanted = labels[:, None].float() * (1 - smoothing) + smoothing / 2
    return functional.binary_cross_entropy_with_logits(logits, wanted)


def _classes(logits: Tensor) -> Tensor:
    return logits.argmax(1) if logits.shape[1] > 1 else (logits[:, 0] > 0).long()


class AutoEncoding(Task):
    """Learn to draw digits again from two numbers: the VAE and its class-conditional sister.

    The loss is the evidence lower bound (Kingma and Welling, 2014) in nats per image: pixels as probabilities, a normal
    prior for the code.
    """

    def __init__(self, network: VAE, train: Samples, test: Samples, recipe: Recipe, device: torch.device) -> None:
        self.network = network.to(device)
        self.recipe, self.device = recipe, device
        self.train, self.test = train.to(device), test.to(device)
        self.optimiser = optimiser_for(network, recipe)
        self.parts = {"network": self.network, "optimiser": self.optimiser}
        self.inputs_per_step = recipe.batch_size

    @override
    def step(self, rows: Tensor, progress: float) -> Tensor:
        self.network.train()
        set_rate(self.optimiser, self.recipe.learning_rate * one_cycle(progress, self.recipe.warm_up))
        loss = negative_bound(self.network, self.train.pixels(rows), self.train.labels[rows]).mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return loss.detach()

    @override
    @torch.no_grad()
    def evaluate(self, final: bool) -> dict[str, float]:
        # The mean bound over the test images at the code's mean, in nats; less is better.
        self.network.eval()
        total = torch.zeros((), device=self.device)
        for rows in torch.split(torch.arange(len(self.test), device=self.device), _EVALUATION_BATCH):
            total += negative_bound(self.network, self.test.pixels(rows), self.test.labels[rows]).sum()
        return {"nats": float(total) / len(self.test)}

    @override
    def result(self) -> nn.Module:
        return self.network


def negative_bound(network: VAE, pixels: Tensor, labels: Tensor) -> Tensor:
    """Return, per image, how many nats its pixels and its code cost."""
    logits, mean, log_variance = network(pixels, labels)
    drawing = functional.binary_cross_entropy_with_logits(logits, pixels, reduction="none").sum((1, 2, 3))
    code = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1) / 2
    bound: Tensor = drawing + code
    return bound

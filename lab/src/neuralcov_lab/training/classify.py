"""Learning classes: images with ten logits, reviews with one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from neuralcov.sources.samples import Samples
from neuralcov_lab.training.augment import Images, training_inputs
from neuralcov_lab.training.clock import one_cycle
from neuralcov_lab.training.recipe import Recipe
from neuralcov_lab.training.recorded import RecordedStep
from neuralcov_lab.training.task import Task, mixed_precision, optimiser_for, placed, set_rate

_EVALUATION_BATCH = 1000


class Classification(Task):
    """Cross-entropy with smoothed labels, under a one-cycle schedule."""

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
        self.mixed = isinstance(self.inputs, Images)
        self._learn = RecordedStep(self._learn_from) if self.mixed else self._learn_from

    def step(self, rows: Tensor, progress: float) -> Tensor:
        """One batch."""
        self.network.train()
        set_rate(self.optimiser, self.recipe.learning_rate * one_cycle(progress, self.recipe.warm_up))
        return self._learn(rows)

    def _learn_from(self, rows: Tensor) -> Tensor:
        with mixed_precision(self.device, self.mixed):
            logits = self.runner(self.inputs.batch(rows))
        loss = _loss(logits.float(), self.labels[rows], self.recipe.smoothing)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimiser.step()
        return loss.detach()

    def evaluate(self, final: bool) -> dict[str, float]:
        """The share of test inputs whose class is right, in full precision at the end."""
        return {"accuracy": accuracy(self.network, self.test, mixed=self.mixed and not final)}

    def result(self) -> nn.Module:
        """The trained network."""
        return self.network


@torch.no_grad()
def accuracy(network: nn.Module, samples: Samples, mixed: bool = False) -> float:
    """The share of samples on the network's own device that it classifies rightly."""
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

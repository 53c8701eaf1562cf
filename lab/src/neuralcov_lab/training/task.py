"""What a training does: one step at a time, an evaluation now and then, and a state that can be put away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from neuralcov_lab.training.recipe import Recipe

Network = TypeVar("Network", bound=nn.Module)


class Task(ABC):
    """A network, its data and its optimisers.

    ``parts`` holds everything with a ``state_dict`` that a checkpoint must keep.
    """

    parts: dict[str, Any]
    inputs_per_step: int

    @abstractmethod
    def step(self, rows: Tensor, progress: float) -> Tensor:
        """Learn from some of the training inputs; the loss stays on the device."""

    @abstractmethod
    def evaluate(self, final: bool) -> dict[str, float]:
        """How good the network is now, on data it was not trained on; thoroughly, if it is the final one."""

    @abstractmethod
    def result(self) -> nn.Module:
        """The network to keep."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        for name, part in self.parts.items():
            part.load_state_dict(state[name])


def placed(network: Network, device: torch.device) -> Network:
    """The network on its device, convolutions with their channels last in memory."""
    moved: Any = network.to(device)
    moved = moved.to(memory_format=torch.channels_last)
    return cast(Network, moved)


def mixed_precision(device: torch.device, wanted: bool = True) -> AbstractContextManager[Any]:
    """bfloat16 on a GPU, where it is fast; full precision elsewhere, or where it is not wanted."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=wanted and device.type == "cuda")


def optimiser_for(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser, with weight decay for weights alone; fit to be recorded where the network is on a GPU."""
    weights = [parameter for parameter in network.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in network.parameters() if parameter.dim() <= 1]
    groups = [{"params": weights, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}]
    rate, on_gpu = learning_rate(network, recipe.learning_rate)
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(groups, rate, momentum=0.9, nesterov=True, fused=on_gpu)
    return torch.optim.AdamW(groups, rate, betas=(0.9, 0.99), fused=on_gpu, capturable=on_gpu)


def learning_rate(network: nn.Module, rate: float) -> tuple[Tensor | float, bool]:
    """A learning rate as the network's device wants it, in a tensor on a GPU, and whether it is on one."""
    device = next(network.parameters()).device
    return (torch.tensor(rate, device=device), True) if device.type == "cuda" else (rate, False)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group; where it is a tensor, the one that recorded steps read."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

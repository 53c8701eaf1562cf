"""A running average of a network's weights, which draws better than any single state of them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn


class Average:
    """Weights averaged over the steps of training, with less weight on the past at the beginning."""

    def __init__(self, network: nn.Module, weight: float) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.weight = weight
        self.steps = 0

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Take in the network as it is now; buffers are copied."""
        self.steps += 1
        weight = min(self.weight, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(list(self.network.parameters()), list(network.parameters()), 1 - weight)
        for own, other in zip(self.network.buffers(), network.buffers(), strict=True):
            own.copy_(other)

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"network": self.network.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.network.load_state_dict(state["network"])
        self.steps = state["steps"]

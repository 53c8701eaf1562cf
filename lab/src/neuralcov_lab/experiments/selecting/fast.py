"""FAST's idea, rebuilt from the paper's text: features that blur confidence are pruned before uncertainty is read.

J. Chen and others, "FAST: Boosting Uncertainty-based Test Prioritization Methods for Neural Networks via Feature
Selection", ASE 2024. The importance of a feature for a class is how far it moves that class's score from the mean of
all, either way, on average over training inputs of the class that the network gets right; of the features that the last
layer is given, the least important are set to 0 for the class that was decided, and DeepGini is read off the outputs
that follow. Of twenty forms (five readings of "importance", four shares) this one was the best on networks that were
used for choosing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

KEPT_SHARE = 0.7


def fast_logits(
    head: nn.Linear, features: Tensor, right: Tensor, decided: Tensor, share: float = KEPT_SHARE
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from features and decisions to outputs with noisy features pruned.

    Args:
        head: the last layer; one with a single neuron counts as the second of two classes, the first always 0.
        features: of training inputs.
        right: which of them the network gets right.
        decided: the class of each.
        share: of the features that are kept for each class.
    """
    weight, bias = head.weight.detach(), None if head.bias is None else head.bias.detach()
    if len(weight) == 1:
        # One number z tells two classes apart and stands for (0, z).
        weight = torch.cat([torch.zeros_like(weight), weight])
        bias = None if bias is None else torch.cat([torch.zeros_like(bias), bias])
    kept = torch.ones_like(weight)
    count = max(1, round(share * weight.shape[1]))
    for number in range(len(weight)):
        own = features[right & (decided == number)]
        if len(own):
            importance = (own.mean(0) * (weight[number] - weight.mean(0))).abs()
            kept[number] = 0
            kept[number, importance.topk(count).indices] = 1

    def pruned(given: Tensor, classes: Tensor) -> Tensor:
        return nn.functional.linear(given * kept[classes], weight, bias)

    return pruned

"""Choose what a campaign starts from: inputs drawn from the data, or those that the model is least sure of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.core.trees import plain_output
from neuralcov.fuzz.formats import format_of
from neuralcov.rank.scores import confidence
from neuralcov.sources.samples import Samples
from neuralcov.tap.inputs import call, to_device


@torch.no_grad()
def least_sure(
    samples: Samples, count: int | None, model: nn.Module, prepare: Callable[[Tensor], Any], batch: int, device: str
) -> Samples:
    """Return inputs that the model reads rightly with the least certainty; all of those if they are fewer.

    Certainty goes by DeepGini (Feng et al., 2020): 1 − Σ p², the chance that two draws by the model's probabilities
    differ. Of equal inputs the first are taken; what is taken keeps the order of the data.

    Args:
        samples: to choose from; the model is run on all of them.
        count: how many.
        model: gives a score per class, or one logit.
        prepare: from decoded inputs to what the model takes.
        batch: inputs at a time.
        device: the model's.
    """
    padding = 0 if samples.text_call is None else samples.text_call.padding
    stored = format_of(samples.inputs, levels=samples.levels, padding=padding)
    found = []
    for inputs, labels in zip(torch.split(samples.inputs, batch), torch.split(samples.labels, batch), strict=True):
        ready = to_device(prepare(stored.decode(inputs)), torch.device(device))
        told = confidence(plain_output(call(model, ready)), len(inputs))
        if told is None:
            raise InputError("--unsure-seeds: the model gives no score per class, which the seeds are to be chosen by")
        right = told.first.cpu() == labels.cpu()
        found.append(torch.where(right, told.gini.cpu().double(), torch.nan))
    doubts = torch.cat(found)
    right = ~doubts.isnan()
    if not right.any():
        raise InputError(
            f"--unsure-seeds: the model reads none of {counted(len(samples), 'input')} rightly; are these its data?"
        )
    order = torch.argsort(doubts.nan_to_num(-1), descending=True, stable=True)[: int(right.sum())]
    return samples.take(order[:count].sort().values.to(samples.inputs.device))

"""Adversarial inputs by foolbox: PGD and Carlini–Wagner, and perturbed inputs that keep their prediction."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from neuralcov.core.errors import InputError, MissingExtraError
from neuralcov.experiments.scales import Scale
from neuralcov.zoo.samples import Samples

EPSILON = 8 / 255
_SCALES = (1.0, 0.75, 0.5, 0.25, 0.125, 0.0625, 0.03125)


@dataclass(frozen=True, eq=False)
class Attacked:
    """Attacked inputs, and the share of them the model gets wrong."""

    samples: Samples
    success: float


def attack(model: nn.Module, samples: Samples, method: str, scale: Scale, seed: int = 0, batch: int = 1000) -> Attacked:
    """Adversarial inputs near some samples, in [0, 1].

    ``PGD``: L∞ within 8/255, steps of a quarter of that, from a random start. ``CW``: L2, one search step.

    Args:
        model: takes prepared inputs.
        samples: with labels that the attack leads away from.
        method: ``PGD`` or ``CW``.
        scale: how many steps.
        seed: of the random start.
        batch: inputs at a time.
    """
    foolbox = _foolbox()
    if method == "PGD":
        method_of, epsilon = foolbox.attacks.LinfPGD(steps=scale.pgd_steps, abs_stepsize=EPSILON / 4), EPSILON
    elif method == "CW":
        # One search step, so that the constant must be large enough at once.
        method_of = foolbox.attacks.L2CarliniWagnerAttack(
            binary_search_steps=1, steps=scale.cw_steps, stepsize=0.01, initial_const=10.0
        )
        epsilon = None
    else:
        raise InputError(f"there is no attack {method!r}: there are 'PGD' and 'CW'")
    net = foolbox.PyTorchModel(model, bounds=(0, 1), device=samples.inputs.device, preprocessing=_preprocessing(samples))
    devices = [samples.inputs.device] if samples.inputs.device.type == "cuda" else []
    parts, wrong = [], 0
    with torch.random.fork_rng(devices=devices), _without_gradients(model):
        torch.manual_seed(seed)
        for rows in torch.split(torch.arange(len(samples), device=samples.inputs.device), batch):
            images, labels = samples.pixels(rows), samples.labels[rows]
            _, moved, success = method_of(net, images, labels, epsilons=epsilon)
            parts.append(moved.detach())
            wrong += int(success.sum())
    found = replace(samples, name=f"{method} on {samples.name}", inputs=torch.cat(parts))
    return Attacked(found, wrong / len(samples))


@torch.no_grad()
def kept_prediction(model: nn.Module, clean: Samples, attacked: Samples, wanted: int) -> Samples:
    """Inputs moved as far toward an attack as their prediction allows, of those that can be moved at all.

    Of each the largest of 1, ¾, ½, ¼ … 1⁄32 of the attack's perturbation under which the model still predicts what
    it predicts for the clean input; inputs that flip even under the smallest are passed over.

    Args:
        model: takes prepared inputs.
        clean: the inputs.
        attacked: the same ones attacked.
        wanted: how many, at most.
    """
    before, change = clean.pixels(), attacked.inputs - clean.pixels()
    predicted = model(clean.prepare(before)).argmax(1)
    chosen = torch.zeros(len(clean), device=before.device)
    for share in reversed(_SCALES):
        same = model(clean.prepare(before + share * change)).argmax(1) == predicted
        chosen = torch.where(same, share, chosen)
    rows = (chosen > 0).nonzero()[:, 0][:wanted]
    inputs = before[rows] + chosen[rows, None, None, None] * change[rows]
    return replace(clean.take(rows, f"perturbed, {attacked.name}"), inputs=inputs)


def _preprocessing(samples: Samples) -> dict[str, Any] | None:
    if not samples.mean:
        return None
    return {"mean": list(samples.mean), "std": list(samples.std), "axis": -3}


class _without_gradients:  # noqa: N801
    """Gradients are wanted for inputs only."""

    def __init__(self, model: nn.Module) -> None:
        self._asked = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def __enter__(self) -> None:
        for parameter in self._asked:
            parameter.requires_grad_(False)

    def __exit__(self, *_: object) -> None:
        for parameter in self._asked:
            parameter.requires_grad_(True)


def _foolbox() -> Any:
    try:
        return importlib.import_module("foolbox")
    except ImportError as error:
        raise MissingExtraError("attacks need foolbox: pip install 'neuralcov[experiments]'") from error


def accuracy(model: nn.Module, samples: Samples, batch: int = 1000) -> float:
    """Share of samples the model gets right."""
    right = torch.zeros((), dtype=torch.int64, device=samples.labels.device)
    with torch.no_grad():
        for inputs, labels in samples.batches(batch):
            right += (model(inputs).argmax(1) == labels).sum()
    return float(right) / len(samples)



"""Adversarial inputs by foolbox: PGD and Carlini–Wagner, and perturbed inputs that keep their prediction."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn
from torch.fx.experimental.optimization import fuse

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.scales import Scale

# Bounds of PGD's attempts, and how many times the scale's steps each takes.
BOUNDS = ((8 / 255, 1), (16 / 255, 2), (32 / 255, 4), (64 / 255, 4))
# What CW weighs misclassification with against the length of the change. There is one search step only, so that it must
# be right at once: with 1, changes on VGG16-BN are nine times as long as with 10, for no more successes.
CW_CONSTANT = 10.0
# What is changed less than this, Euclidean in pixels of [0, 1], is not changed: a thousandth of the usual.
LEAST_CHANGE = 1e-3
_SHARES = (1.0, 0.75, 0.5, 0.25, 0.125, 0.0625, 0.03125)


@dataclass(frozen=True, eq=False)
class Attacked:
    """Attacked inputs, the share of them the model gets wrong after each attempt, and how far they were moved.

    ``mean_length`` is that of the change, Euclidean, in pixels of [0, 1].
    """

    samples: Samples
    successes: tuple[float, ...]
    mean_length: float

    @property
    def success(self) -> float:
        """The share in the end."""
        return self.successes[-1]

    def to_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {"success": self.success, "after attempts": list(self.successes), "mean length": self.mean_length}


def attack(
    model: nn.Module,
    samples: Samples,
    method: str,
    scale: Scale,
    seed: int = 0,
    *,
    batch: int = 1000,
    constant: float = CW_CONSTANT,
) -> Attacked:
    """Adversarial inputs near some samples, in [0, 1].

    ``PGD``: L∞ within 8/255 from a random start; inputs that withstand are attacked again within 16/255, 32/255 and
    64/255 with more steps, since label smoothing in training hides the way from weaker attacks. ``CW``: L2, one
    search step.

    Args:
        model: takes prepared inputs.
        samples: with labels that the attack leads away from.
        method: ``PGD`` or ``CW``.
        scale: how many steps.
        seed: of the random start.
        batch: inputs at a time.
        constant: of CW.
    """
    attempts = _attempts(method, scale, constant)
    device = samples.inputs.device
    quick = _quick(model, device)
    net = _foolbox().PyTorchModel(quick, bounds=(0, 1), device=device, preprocessing=_preprocessing(samples))
    moved = samples.pixels().clone()
    withstood = torch.arange(len(samples), device=device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), _without_gradients(quick):
        torch.manual_seed(seed)
        successes = []
        for attempt, bound in attempts:
            left = [withstood[:0]]
            for rows in torch.split(withstood, batch):
                if len(rows):
                    clean = samples.pixels(rows)
                    _, found, success = attempt(net, clean, samples.labels[rows], epsilons=bound)
                    # The model itself decides, not the quicker form of it that was attacked.
                    wrong = _predicted(model, samples.prepare(found.detach())) != samples.labels[rows]
                    # Where it fails, an attack without a bound gives black images: those inputs stay as they are.
                    wrong = wrong if bound is not None else wrong & success
                    kept = torch.ones_like(wrong) if bound is not None else wrong
                    moved[rows] = torch.where(kept[:, None, None, None], found.detach(), clean)
                    left.append(rows[~wrong])
            withstood = torch.cat(left)
            successes.append(1 - len(withstood) / len(samples))
    change = moved - samples.pixels()
    return Attacked(
        replace(samples, name=f"{method} on {samples.name}", inputs=moved),
        successes=tuple(successes),
        mean_length=float(change.flatten(1).norm(dim=1).mean()),
    )


def _attempts(method: str, scale: Scale, constant: float) -> list[tuple[Any, float | None]]:
    attacks = _foolbox().attacks
    if method == "PGD":
        return [
            (attacks.LinfPGD(steps=times * scale.pgd_steps, abs_stepsize=bound / (4 * times)), bound)
            for bound, times in BOUNDS
        ]
    if method == "CW":
        found = attacks.L2CarliniWagnerAttack(
            binary_search_steps=1, steps=scale.cw_steps, stepsize=0.01, initial_const=constant
        )
        return [(found, None)]
    raise InputError(f"there is no attack {method!r}: there are 'PGD' and 'CW'")


@torch.no_grad()
def kept_prediction(
    model: nn.Module, clean: Samples, attacked: Samples, wanted: int, least: float = LEAST_CHANGE
) -> Samples:
    """Inputs moved as far toward an attack as their prediction allows, of those that can be moved at all.

    Of each the largest of 1, ¾, ½, ¼ … 1⁄32 of the attack's perturbation under which the model still predicts what
    it predicts for the clean input. Passed over are inputs that flip even under the smallest, and those that the attack
    left as they were, since it failed or the model got them wrong already.

    Args:
        model: takes prepared inputs.
        clean: the inputs.
        attacked: the same ones attacked.
        wanted: how many, at most.
        least: length of the change below which an input counts as unchanged.
    """
    before, change = clean.pixels(), attacked.inputs - clean.pixels()
    predicted = model(clean.prepare(before)).argmax(1)
    chosen = torch.zeros(len(clean), device=before.device)
    for share in reversed(_SHARES):
        same = model(clean.prepare(before + share * change)).argmax(1) == predicted
        chosen = torch.where(same, share, chosen)
    changed = chosen * change.flatten(1).norm(dim=1) >= least
    rows = changed.nonzero()[:, 0][:wanted]
    inputs = before[rows] + chosen[rows, None, None, None] * change[rows]
    return replace(clean.take(rows, f"perturbed, {attacked.name}"), inputs=inputs)


def _quick(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the same function to rounding, with quicker gradients: no batch normalisation, on a GPU channels last."""
    fused: Any = fuse(model)  # a copy
    return cast(nn.Module, fused.to(memory_format=torch.channels_last) if device.type == "cuda" else fused)


@torch.no_grad()
def _predicted(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return cast(torch.Tensor, model(inputs).argmax(1))


def _preprocessing(samples: Samples) -> dict[str, Any] | None:
    if not samples.mean:
        return None
    return {"mean": list(samples.mean), "std": list(samples.std), "axis": -3}


@contextmanager
def _without_gradients(model: nn.Module) -> Iterator[None]:
    """Gradients are wanted for inputs only."""
    asked = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in asked:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)


def _foolbox() -> Any:
    """Import foolbox only where something is attacked: it takes a second."""
    return importlib.import_module("foolbox")

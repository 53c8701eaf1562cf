"""Any augmentation of kornia as a mutation."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.fuzz.mutations.mutation import FunctionMutation


def kornia_mutation(augmentation: Any, *, geometric: bool | None = None, name: str | None = None) -> FunctionMutation:
    """A mutation from an augmentation of kornia, such as ``kornia.augmentation.RandomPerspective(p=1.0)``.

    What it draws is drawn anew from the campaign's own randomness, so that it can be repeated like any other.

    Args:
        augmentation: a module that takes and gives pictures ``(batch, channels, height, width)`` in [0, 1].
        geometric: whether it moves the whole picture; by default what kornia says it is.
        name: by default that of its class.
    """
    try:
        base = importlib.import_module("kornia.augmentation")
    except ImportError as error:
        raise InputError("augmentations of kornia need kornia: pip install 'neuralcov[fuzz]'") from error
    if not isinstance(augmentation, base.AugmentationBase2D):
        raise InputError(f"{augmentation!r}: expected an augmentation of kornia for pictures")
    if geometric is None:
        geometric = isinstance(augmentation, base.GeometricAugmentationBase2D)

    def drawn(images: Tensor, generator: torch.Generator) -> Tensor:
        devices = [images.device] if images.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # kornia draws from the global generators
            torch.manual_seed(generator.initial_seed())
            found: Tensor = augmentation(images)
            return found

    return FunctionMutation(drawn, geometric=geometric, name=name or type(augmentation).__name__)

"""Devices named by a user."""

from __future__ import annotations

import torch

from neuralcov.core.errors import InputError


def usable_device(device: torch.device | str) -> torch.device:
    """The device, or one sentence on why it cannot be used."""
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        first = next(iter(str(error).splitlines()), "")
        raise InputError(f"device {str(device)!r} cannot be used here: {first}") from error
    return chosen

"""Devices named by a user, and looks at what is on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.core.shapes import Bool


def usable_device(device: torch.device | str) -> torch.device:
    """The device, or one sentence on why it cannot be used."""
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        first = next(iter(str(error).splitlines()), "")
        raise InputError(f"device {str(device)!r} cannot be used here: {first}") from error
    return chosen


class Glance:
    """A flag on a device, for work that may be skipped if the flag is known to be down.

    On a GPU the flag is sent to the host and read only if it has arrived; nobody waits for it.
    """

    def __init__(self, flag: Bool[Tensor, ""]) -> None:
        self._flag = flag
        self._arrived: Any = None
        if flag.is_cuda:
            self._flag = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(flag, non_blocking=True)
            self._arrived = torch.cuda.current_stream(flag.device).record_event()

    def surely_down(self) -> bool:
        """Say whether the flag is known to be down."""
        if self._flag.device.type != "cpu" or (self._arrived is not None and not self._arrived.query()):
            return False
        return not bool(self._flag)

"""Where and when something was measured: versions, device, and times as files hold them."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime

import torch


def software() -> dict[str, str]:
    """Return the versions that a number may depend on."""
    ours = sys.modules[__name__.partition(".")[0]]
    return {"neuralcov": str(ours.__version__), "torch": torch.__version__, "python": platform.python_version()}


def device_name(device: torch.device) -> str:
    """Return the name of a device, such as ``NVIDIA H200`` or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def to_utc(seconds: float | None) -> str | None:
    """Return a time as files hold it, in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_utc(text: str | None) -> float | None:
    """Return a time of a file in seconds since 1970."""
    return None if text is None else datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()

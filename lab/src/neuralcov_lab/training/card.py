"""The card beside a weights file: what was trained, on what, how, and how good it became."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import neuralcov


def software() -> dict[str, str]:
    """The versions that a result depends on."""
    versions = {"neuralcov": neuralcov.__version__, "python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    return versions


def device_name(device: torch.device) -> str:
    """Such as ``NVIDIA H200`` or ``CPU``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


@dataclass(frozen=True)
class Card:
    """One training, as JSON.

    Args:
        network: its name in the zoo.
        arguments: what it was built with.
        parameters: how many numbers were learnt.
        data: the training data.
        inputs: how many there were.
        test: the data it was judged on.
        recipe: how it was trained.
        seed: of every random choice.
        epochs: passes over the data that were made.
        steps: steps that were made.
        results: accuracy, FID or nats, on test data.
        seconds: from the first step to the last, evaluations included.
        device: what it ran on.
        resumed: how often it was stopped and went on.
        versions: of the software.
        weights_sha256: of the weights file.
    """

    network: str
    arguments: dict[str, Any]
    parameters: int
    data: str
    inputs: int
    test: str
    recipe: dict[str, Any]
    seed: int
    epochs: int
    steps: int
    results: dict[str, float]
    seconds: float
    device: str
    resumed: int = 0
    versions: dict[str, str] = field(default_factory=software)
    weights_sha256: str = ""

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def card_path(output: Path) -> Path:
    """Beside the weights, with the same name and ``.json``."""
    return output.with_suffix(".json")

"""The files of a training: weights, their card, and the checkpoint to go on from; each complete or absent."""

from __future__ import annotations

import json
import pickle
import platform
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor, nn

import neuralcov
from neuralcov.core.errors import InputError, StateFileError
from neuralcov.core.files import atomic_write
from neuralcov_lab.fetching.archives import sha256_of


def software() -> dict[str, str]:
    """Return the versions that a result depends on."""
    versions = {"neuralcov": neuralcov.__version__, "python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    return versions


def device_name(device: torch.device) -> str:
    """Return a name such as ``NVIDIA H200`` or ``CPU``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


@dataclass(frozen=True)
class Card:
    """Tell of one training, as JSON.

    Args:
        network: its name in the zoo.
        arguments: what it was built with.
        parameters: how many numbers were learnt.
        data: the training data.
        inputs: how many there were.
        test: the data it was judged on.
        recipe: how it was trained.
        seed: seed of all random choices.
        epochs: passes over the data that were made.
        steps: steps that were made.
        results: accuracy, FID or nats, on test data.
        seconds: from the first step to the last, evaluations included.
        device: what it ran on.
        resumed: how often it was stopped and went on.
        kept: results and the weights' SHA-256 after the epochs whose weights were kept.
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
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=software)
    weights_sha256: str = ""

    def write(self, path: Path) -> None:
        """Write the card as JSON."""
        with atomic_write(path) as file:
            file.write((json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n").encode())


def card_path(output: Path) -> Path:
    """Return the path beside the weights, with the same name and ``.json``."""
    return output.with_suffix(".json")


def require_writable(output: Path) -> None:
    """Make the folder of a weights file and its card, or say why they cannot be written: better now than at the end."""
    try:
        for path in (output, card_path(output)):
            if path.is_dir():
                raise IsADirectoryError(f"{path.name} is a folder")
        output.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{output}: cannot be written ({reason}): name a file in a folder that can") from error


def write_weights(network: nn.Module, output: Path, *, half: bool = False) -> str:
    """Write a network's weights as safetensors in one step, and return the file's SHA-256."""
    state = {name: _storable(value, half) for name, value in network.state_dict().items()}
    broken = next((name for name, value in state.items() if not bool(value.isfinite().all())), None)
    if broken is not None:
        raise InputError(f"{output}: {broken} holds NaN or infinity, so nothing was written; lower the learning_rate=")
    try:
        with atomic_write(output) as file:
            file.write(save(state))
    except (OSError, SafetensorError) as error:
        raise StateFileError(f"{output}: the weights cannot be written: {error}") from error
    return sha256_of(output)


def _storable(value: Tensor, half: bool) -> Tensor:
    flat = value.detach().cpu().contiguous()
    return flat.half() if half and flat.is_floating_point() else flat


def checkpoint_path(output: Path) -> Path:
    """Return the path beside the weights to come."""
    return output.with_name(output.name + ".checkpoint")


def kept_path(output: Path, epoch: int) -> Path:
    """Return the path beside the weights to come, of those after an epoch.

    >>> kept_path(Path("net.safetensors"), 3).name
    'net.epoch3.safetensors'
    """
    return output.with_name(f"{output.stem}.epoch{epoch}{output.suffix}")


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write in one step, so that a stop while writing leaves the earlier checkpoint."""
    try:
        with atomic_write(path) as file:
            torch.save(content, file)
    except (OSError, RuntimeError) as error:
        raise StateFileError(f"{path}: the checkpoint cannot be written: {error}") from error


def read_checkpoint(path: Path, expected: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Read a checkpoint of the same training, as plain tensors and numbers only.

    Args:
        path: the file.
        expected: what identifies the training; a checkpoint of another is refused.
        device: where its tensors go.
    """
    try:
        content = torch.load(path, map_location=device, weights_only=True)
        found = dict(content["training"])
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError, OSError, ValueError) as error:
        raise StateFileError(
            f"{path}: not a checkpoint of a training, or cut short; delete it to start over"
        ) from error
    for name, value in expected.items():
        if name not in found:
            raise InputError(
                f"{path}: does not tell its {name} and may be of another training: delete it to start over"
            )
        if found[name] != value:
            raise InputError(
                f"{path}: made with {name} {found[name]!r}, but this training has {value!r}; "
                "set it as before, or delete the checkpoint to start over"
            )
    return dict(content)

"""The weights file that a training writes: refused beforehand where it cannot be, complete or absent afterwards."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from neuralcov.core.errors import InputError, StateFileError
from neuralcov_lab.fetching.archives import sha256_of
from neuralcov_lab.training.card import card_path


def require_writable(output: Path) -> None:
    """Make the folder of a weights file and its card, or say why they cannot be written: better now than at the end."""
    unfinished = _unfinished(output)
    try:
        for path in (output, card_path(output)):
            if path.is_dir():
                raise IsADirectoryError(f"{path.name} is a folder")
        output.parent.mkdir(parents=True, exist_ok=True)
        unfinished.touch()
        unfinished.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{output}: cannot be written ({reason}): name a file in a folder that can") from error


def write_weights(network: nn.Module, output: Path, *, half: bool = False) -> str:
    """Write a network's weights as safetensors in one step, and return the file's SHA-256."""
    state = {name: _storable(value, half) for name, value in network.state_dict().items()}
    unfinished = _unfinished(output)
    try:
        save_file(state, unfinished)
        # safetensors makes files that nobody else may read.
        mask = os.umask(0)
        os.umask(mask)
        unfinished.chmod(0o666 & ~mask)
        os.replace(unfinished, output)
    except (OSError, SafetensorError) as error:
        unfinished.unlink(missing_ok=True)
        raise StateFileError(f"{output}: the weights cannot be written: {error}") from error
    return sha256_of(output)


def _unfinished(output: Path) -> Path:
    return output.with_name(output.name + ".unfinished")


def _storable(value: Tensor, half: bool) -> Tensor:
    flat = value.detach().cpu().contiguous()
    return flat.half() if half and flat.is_floating_point() else flat

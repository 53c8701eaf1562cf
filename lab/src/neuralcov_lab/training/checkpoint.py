"""Checkpoints: everything needed to go on with a training that was stopped, complete or absent."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from neuralcov.core.errors import InputError, StateFileError


def checkpoint_path(output: Path) -> Path:
    """Beside the weights to come."""
    return output.with_name(output.name + ".checkpoint")


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write in one step, so that a stop while writing leaves the earlier checkpoint."""
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        torch.save(content, unfinished)
        os.replace(unfinished, path)
    except (OSError, RuntimeError) as error:
        unfinished.unlink(missing_ok=True)
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

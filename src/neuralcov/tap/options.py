"""How a model is to be run, checked when a coverage is built."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from neuralcov.core.errors import InputError
from neuralcov.tap.foreign import as_module
from neuralcov.tap.outputs import POOLS


def check_options(
    model: Any, *, predict: Any, batch_axis: Any, mode: Any, steps: Any, rows: Any, pool: Any
) -> nn.Module:
    """Refuse options that no model can be run with; return the model, as a module if it is of another runtime."""
    model = as_module(model)
    if not isinstance(model, nn.Module):
        raise InputError(
            f"a model of type {type(model).__name__}: expected a torch.nn.Module, a file that ends in .onnx, a "
            "Keras model or an ExportedProgram"
        )
    if mode not in ("eval", "keep"):
        raise InputError(f"mode={mode!r}: expected 'eval' or 'keep'")
    if steps is not None and (not isinstance(steps, int) or steps < 1):
        raise InputError(f"steps={steps!r}: expected a whole number of at least 1")
    if not isinstance(batch_axis, int):
        raise InputError(f"batch_axis={batch_axis!r}: expected a whole number")
    if pool not in POOLS:
        raise InputError(f"pool={pool!r}: expected one of {', '.join(map(repr, POOLS))}")
    if predict is not None and not callable(predict):
        raise InputError(f"predict={predict!r}: expected a function from the model's output to classes")
    if rows is not None and not callable(rows):
        raise InputError(f"rows={rows!r}: expected a function from layer and output to the input of each row")
    return model


def device_of(model: nn.Module, said: torch.device | None) -> torch.device:
    """Return where inputs go: where the model's first parameter lies, or as ``said`` for a model without any."""
    first = next(model.parameters(), None)
    if first is None:
        return said or torch.device("cpu")
    if said is not None and (said.type != first.device.type or said.index not in (None, first.device.index)):
        raise InputError(
            f"device={str(said)!r} but the model's parameters are on {first.device}: "
            "move the model there or leave device= out"
        )
    return first.device

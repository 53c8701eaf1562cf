"""Inputs as people see them: small pictures, tokens or numbers, kept while a suite is observed.

Which inputs a report shows is known after the last one. So all are kept small, and once they take too much memory only
those are kept on that would be shown by then.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from neuralcov.results.galleries import View

# Pixels of the longer side; tokens or numbers of an input that is no picture.
_SIDE, _NUMBERS = 64, 48
_BYTES = 256 << 20
_PICTURES = "pixel_values"


class ViewStore:
    """Keep what inputs look like.

    Args:
        preprocessing: what was done to pixels, undone where it is a mapping with ``mean`` and ``std``.
        budget: bytes to keep.
    """

    def __init__(self, preprocessing: Any = None, budget: int = _BYTES) -> None:
        self._preprocessing, self._budget = preprocessing, budget
        self._range: tuple[float, float] | None = None
        self._parts: list[tuple[int, np.ndarray]] = []
        self._single: dict[int, np.ndarray] = {}
        self._bytes = 0

    def add(self, inputs: Any, first: int, size: int, wanted: Callable[[], Iterable[int]]) -> None:
        """Keep the inputs of a batch; ``wanted`` names the rows to keep on once there are too many.

        Args:
            inputs: as a loader gives them.
            first: the row of the first of them.
            size: how many they are.
            wanted: asked for rows if memory is short.
        """
        tensor = _main_tensor(inputs, size)
        if tensor is None:
            return
        small = self._pictures(tensor) if _are_pictures(tensor) else _first_numbers(tensor)
        self._parts.append((first, small))
        self._bytes += small.nbytes
        if self._bytes > self._budget:
            rows = {row: found for row in wanted() if (found := self._find(row)) is not None}
            self._parts, self._single = [], {row: array.copy() for row, array in rows.items()}
            self._bytes = sum(array.nbytes for array in self._single.values())

    def _find(self, row: int) -> np.ndarray | None:
        if row in self._single:
            return self._single[row]
        for first, array in self._parts:
            if first <= row < first + len(array):
                found: np.ndarray = array[row - first]
                return found
        return None

    def views(self, rows: Iterable[int]) -> dict[int, View]:
        """Return some inputs as pictures (PNG) or text."""
        found = {}
        for row in rows:
            array = self._find(row)
            if array is not None:
                found[row] = View(_png(array)) if array.ndim == 3 else View(text=_as_text(array))
        return found

    def _pictures(self, tensor: Tensor) -> np.ndarray:
        """Return pictures as bytes, (inputs, height, width, channels), the longer side at most so many pixels."""
        pixels = tensor.detach()
        if pixels.shape[1] not in (1, 3):
            pixels = pixels.permute(0, 3, 1, 2)
        pixels = self._scaled(pixels)
        height, width = pixels.shape[2:]
        longer = max(height, width)
        if longer > _SIDE:
            small = max(1, round(height * _SIDE / longer)), max(1, round(width * _SIDE / longer))
            pixels = functional.interpolate(pixels, size=small, mode="area")
        levels = (pixels * 255).round().clamp(0, 255).nan_to_num(0).to(torch.uint8)
        array: np.ndarray = levels.permute(0, 2, 3, 1).contiguous().cpu().numpy()
        return array

    def _scaled(self, pixels: Tensor) -> Tensor:
        """Return pixels between 0 and 1; the first batch says what black and white are where nobody else does."""
        if pixels.dtype == torch.uint8:
            return pixels.float() / 255
        values = pixels.float()
        undone = _undone(values, self._preprocessing)
        if undone is not None:
            values = undone
        if self._range is None:
            finite = values[values.isfinite()]
            low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
            if low >= -1e-3 and high <= 1 + 1e-3:
                low, high = 0.0, 1.0
            elif low >= 0 and 1 < high <= 255:
                # A network fed with bytes, or one that somebody forgot to scale.
                low, high = 0.0, 255.0
            self._range = low, high if high > low else low + 1
        low, high = self._range
        return (values - low) / (high - low)


def _undone(values: Tensor, preprocessing: Any) -> Tensor | None:
    """Take mean and deviation of channels back, where they are told."""
    if not isinstance(preprocessing, Mapping):
        return None
    parts = []
    for name, neutral in (("mean", 0.0), ("std", 1.0)):
        told = preprocessing.get(name)
        numbers = [neutral] if told is None else list(told) if isinstance(told, Sequence) else [told]
        if len(numbers) not in (1, values.shape[1]) or not all(isinstance(x, (int, float)) for x in numbers):
            return None
        parts.append(torch.tensor(numbers, dtype=torch.float32, device=values.device)[None, :, None, None])
    mean, deviation = parts
    return values * deviation + mean


def _main_tensor(inputs: Any, size: int) -> Tensor | None:
    """Return the part of a batch to look at: pictures if there are some, else the first with a row an input."""
    if isinstance(inputs, Mapping):
        parts = [inputs[_PICTURES]] if _PICTURES in inputs else list(inputs.values())
    else:
        parts = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    tensors = [torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in parts]
    rows = [part for part in tensors if isinstance(part, Tensor) and part.ndim > 1 and len(part) == size]
    pictures = [part for part in rows if _are_pictures(part)]
    return next(iter([*pictures, *rows]), None)


def _are_pictures(tensor: Tensor) -> bool:
    """Return whether these are grey or coloured pictures, channels first or last."""
    if tensor.ndim != 4 or tensor.dtype == torch.bool or tensor.is_complex():
        return False
    first, last = tensor.shape[1] in (1, 3), tensor.shape[3] in (1, 3)
    return (first and min(tensor.shape[2:]) > 3) or (last and min(tensor.shape[1:3]) > 3)


def _first_numbers(tensor: Tensor) -> np.ndarray:
    flat = tensor.detach().flatten(1)[:, :_NUMBERS]
    whole = not (flat.is_floating_point() or flat.is_complex())
    array: np.ndarray = (flat.long() if whole else flat.real.float()).cpu().numpy()
    return array


def _as_text(numbers: np.ndarray) -> str:
    rest = " …" if len(numbers) == _NUMBERS else ""
    if numbers.dtype == np.int64:
        return "tokens " + " ".join(map(str, numbers.tolist())) + rest
    return "numbers " + " ".join(f"{number:.3g}" for number in numbers.tolist()) + rest


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(out, "PNG", optimize=True)
    return out.getvalue()

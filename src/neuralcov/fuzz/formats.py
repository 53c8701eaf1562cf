"""How inputs are stored and how mutations see them: pixels in [0, 1], kept as bytes if they came so; tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.errors import InputError


class InputFormat(ABC):
    """Where inputs live."""

    @abstractmethod
    def decode(self, stored: Tensor) -> Tensor:
        """Stored inputs as mutations and ``preprocess`` see them."""

    @abstractmethod
    def encode(self, inputs: Tensor) -> Tensor:
        """What is stored of mutated inputs; this is what is judged."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Plain data by which a campaign knows its own."""


@dataclass(frozen=True)
class Pixels(InputFormat):
    """Images, or any numbers, in [0, 1].

    Args:
        levels: the byte that stands for 1.0, of images stored as bytes: mutants are rounded to these levels before
            they are judged, so that the saved picture is the mutant. ``None`` for floats, which are not rounded.
    """

    levels: int | None

    def decode(self, stored: Tensor) -> Tensor:
        """Floats in [0, 1]."""
        return stored if self.levels is None else stored.float() / self.levels

    def encode(self, inputs: Tensor) -> Tensor:
        """Cut to [0, 1] and rounded, half to even."""
        inside = inputs.clamp(0, 1)
        return inside if self.levels is None else (inside * self.levels).round().to(torch.uint8)

    def identity(self) -> dict[str, Any]:
        """The levels."""
        return {"kind": "pixels", "levels": self.levels}


@dataclass(frozen=True)
class Tokens(InputFormat):
    """Texts as ``(batch, length)`` whole numbers.

    Args:
        padding: the token behind a text's end.
        words: the vocabulary, a word per token, for showing texts.
    """

    padding: int = 0
    words: Sequence[str] | None = None

    def decode(self, stored: Tensor) -> Tensor:
        """The tokens."""
        return stored

    def encode(self, inputs: Tensor) -> Tensor:
        """The tokens."""
        return inputs

    def text(self, stored: Tensor) -> str:
        """One input in words, or in numbers where the words are not known."""
        numbers = [int(token) for token in stored if int(token) != self.padding]
        return " ".join(str(number) if self.words is None else self.words[number] for number in numbers)

    def identity(self) -> dict[str, Any]:
        """The padding; words are for showing only."""
        return {"kind": "tokens", "padding": self.padding}


def format_of(
    inputs: Tensor, *, levels: int = 255, padding: int = 0, words: Sequence[str] | None = None
) -> InputFormat:
    """Where a user's inputs live: bytes and floats are pixels, other whole numbers of two axes are tokens."""
    if inputs.dtype == torch.uint8:
        if int(inputs.max()) > levels:
            raise InputError(f"inputs hold the byte {int(inputs.max())}: expected at most levels={levels}")
        return Pixels(levels)
    if inputs.is_floating_point():
        low, high = float(inputs.min()), float(inputs.max())
        if not (low >= 0 and high <= 1):
            raise InputError(
                f"inputs range from {low:.4g} to {high:.4g}: expected pixels in [0, 1]; bring them there and undo it, "
                "with any normalisation, in preprocess="
            )
        return Pixels(None)
    if inputs.dim() == 2 and inputs.dtype in (torch.int16, torch.int32, torch.int64):
        return Tokens(padding, words)
    raise InputError(
        f"inputs of type {inputs.dtype} and shape {tuple(inputs.shape)}: expected bytes or floats in [0, 1] as pixels, "
        "or tokens (inputs, length)"
    )

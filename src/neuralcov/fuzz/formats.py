"""Say how inputs are stored and how mutations see them: pixels in [0, 1], kept as bytes if they came so; tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.errors import InputError


class InputFormat(ABC):
    """Translate between inputs as they are stored and as mutations and ``preprocess`` see them."""

    @abstractmethod
    def decode(self, stored: Tensor) -> Tensor:
        """Return stored inputs as mutations and ``preprocess`` see them."""

    @abstractmethod
    def encode(self, inputs: Tensor) -> Tensor:
        """Return what is stored of mutated inputs; this is what is judged."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return plain data by which a campaign knows its own."""


@dataclass(frozen=True)
class Pixels(InputFormat):
    """Store images, or any numbers, in [0, 1].

    Args:
        levels: the byte that stands for 1.0, of images stored as bytes: mutants are rounded to these levels before
            they are judged, so that the saved picture is the mutant. ``None`` for floats, which are not rounded.
    """

    levels: int | None

    @override
    def decode(self, stored: Tensor) -> Tensor:
        return stored if self.levels is None else stored.float() / self.levels

    @override
    def encode(self, inputs: Tensor) -> Tensor:
        inside = inputs.clamp(0, 1)
        # Rounded half to even.
        return inside if self.levels is None else (inside * self.levels).round().to(torch.uint8)

    @override
    def identity(self) -> dict[str, Any]:
        return {"kind": "pixels", "levels": self.levels}


@dataclass(frozen=True)
class Tokens(InputFormat):
    """Store texts as ``(batch, length)`` whole numbers.

    Args:
        padding: the token behind a text's end.
        words: the vocabulary, a word per token, for showing texts.
    """

    padding: int = 0
    words: Sequence[str] | None = None

    @override
    def decode(self, stored: Tensor) -> Tensor:
        return stored

    @override
    def encode(self, inputs: Tensor) -> Tensor:
        return inputs

    def text(self, stored: Tensor) -> str:
        """Return one input in words, or in numbers where the words are not known."""
        numbers = [int(token) for token in stored if int(token) != self.padding]
        return " ".join(str(number) if self.words is None else self.words[number] for number in numbers)

    @override
    def identity(self) -> dict[str, Any]:
        # Words are for showing only.
        return {"kind": "tokens", "padding": self.padding}


def text_lengths(tokens: Tensor, padding: int) -> Tensor:
    """Return the number of tokens before the padding at each row's end, ``(batch,)``.

    >>> text_lengths(torch.tensor([[5, 0, 7, 0], [0, 0, 0, 0]]), 0).tolist()
    [3, 0]
    """
    return torch.arange(1, tokens.shape[1] + 1, device=tokens.device).mul(tokens != padding).amax(1)


def format_of(
    inputs: Tensor, *, levels: int = 255, padding: int = 0, words: Sequence[str] | None = None
) -> InputFormat:
    """Return the format of a user's inputs: bytes and floats are pixels, other whole numbers of two axes tokens."""
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

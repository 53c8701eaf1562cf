"""Hand tokens to a model as it takes them: alone, with their number, or framed and with a mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralcov.fuzz.formats import text_lengths

CALLS = ("tokens", "lengths", "input_ids")


@dataclass(frozen=True)
class TextCall:
    """Hand tokens to a model as it takes them.

    Args:
        padding: the token behind a text's end.
        unknown: the token of words that are not in the vocabulary.
        prefix: tokens that go before every text, such as [CLS]; mutations never see them.
        suffix: tokens that go behind it, such as [SEP].
        call: ``"tokens"``: the tokens alone; ``"lengths"``: with their number, by name; ``"input_ids"``: with an
            attention mask, by the names of Hugging Face.

    >>> TextCall(prefix=(7,), suffix=(8,))(torch.tensor([[5, 6, 0], [5, 0, 0]])).tolist()
    [[7, 5, 6, 8, 0], [7, 5, 8, 0, 0]]
    """

    padding: int = 0
    unknown: int = 1
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    call: str = "tokens"

    def __call__(self, tokens: Tensor) -> Any:
        """Return what the model is called with."""
        lengths = text_lengths(tokens, self.padding)
        whole = self._framed(tokens, lengths)
        if self.call == "tokens":
            return whole
        framed = lengths + len(self.prefix) + len(self.suffix)
        if self.call == "lengths":
            return {"tokens": whole, "lengths": framed.clamp(min=1)}
        mask = torch.arange(whole.shape[1], device=whole.device) < framed[:, None]
        return {"input_ids": whole, "attention_mask": mask.long()}

    def _framed(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        if not self.prefix and not self.suffix:
            return tokens
        before, behind = (tokens.new_tensor(part) for part in (self.prefix, self.suffix))
        count = len(tokens)
        room = tokens.new_full((count, len(behind)), self.padding)
        whole = torch.cat([before.expand(count, -1), tokens, room], 1)
        places = len(before) + lengths[:, None] + torch.arange(len(behind), device=tokens.device)
        return whole.scatter(1, places, behind.expand(count, -1))

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "padding": self.padding,
            "unknown": self.unknown,
            "prefix": list(self.prefix),
            "suffix": list(self.suffix),
            "call": self.call,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TextCall:
        """Return what a folder keeps."""
        if stored["call"] not in CALLS:
            raise ValueError(f"texts are called as {stored['call']!r}")
        numbers = int(stored["padding"]), int(stored["unknown"])
        return cls(*numbers, tuple(map(int, stored["prefix"])), tuple(map(int, stored["suffix"])), stored["call"])

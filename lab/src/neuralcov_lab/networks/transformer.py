"""A small transformer encoder (Vaswani et al., 2017) that says what a text is about."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from neuralcov.core.errors import InputError

PADDING = 0


class TextTransformer(nn.Module):
    """Word and position embeddings, encoder blocks that normalise first, and logits of the mean over the words.

    Args:
        num_classes: of the output.
        vocabulary: number of tokens, padding (0) and unknown (1) among them.
        width: length of a word's vector.
        blocks: encoder blocks.
        heads: attention heads of each.
        steps: tokens of one input.
        dropout: share of the vectors' entries that training leaves out.
    """

    def __init__(
        self,
        num_classes: int = 20,
        vocabulary: int = 15_002,
        width: int = 64,
        blocks: int = 2,
        heads: int = 4,
        steps: int = 96,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        numbers = {"num_classes": num_classes, "vocabulary": vocabulary, "width": width, "blocks": blocks}
        for name, value in {**numbers, "heads": heads, "steps": steps}.items():
            if value < 1:
                raise InputError(f"transformer({name}={value}): {name} must be at least 1")
        if width % heads:
            raise InputError(f"transformer(width={width}, heads={heads}): heads must divide width")
        self.input_shape = (steps,)
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.position = nn.Embedding(steps, width)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, num_classes)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.embedding.weight, 0.0, 0.1)
        nn.init.normal_(self.position.weight, 0.0, 0.02)
        with torch.no_grad():
            self.embedding.weight[PADDING].zero_()

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return logits.

        Args:
            tokens: ``(batch, steps)`` whole numbers, padded with zeros behind the text.
            lengths: tokens of each text; counted where left out.
        """
        if lengths is None:
            lengths = (tokens != PADDING).sum(1)
        counted = lengths.to(tokens.device).long().clamp(min=1)[:, None]
        present = torch.arange(tokens.shape[1], device=tokens.device) < counted
        states = self.dropout(self.embedding(tokens.long()) + self.position.weight[: tokens.shape[1]])
        for block in self.blocks:
            states = block(states, present)
        mean = (self.norm(states) * present[:, :, None]).sum(1) / counted
        return cast(Tensor, self.fc(self.dropout(mean)))


class EncoderBlock(nn.Module):
    """Self-attention and two linear layers, each added to what it was given."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, present: Tensor) -> Tensor:
        """Return ``(batch, steps, width)``; only steps that are present are attended to."""
        states = states + self.dropout(self.joined(self._attend(self.norm1(states), present)))
        wide = functional.gelu(self.wide(self.norm2(states)))
        return cast(Tensor, states + self.dropout(self.narrow(wide)))

    def _attend(self, states: Tensor, present: Tensor) -> Tensor:
        batch, steps, width = states.shape
        parts = self.attention(states).reshape(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=present[:, None, None])
        return attended.transpose(1, 2).reshape(batch, steps, width)

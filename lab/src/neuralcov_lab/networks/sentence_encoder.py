"""The small Universal Sentence Encoder (Cer et al., 2018): two transformer blocks that turn a text into 512 numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import require

PADDING = 0
STEPS = 128
_EPSILON = 1e-6
_STACK = "module_apply_default/Encoder_en/KonaTransformer/Encode/"
_GIVEN = "module/Encoder_en/KonaTransformer/Encode/"
_LAST = "module/Encoder_en/hidden_layers/tanh_layer_0/"


def sentence_encoder(folder: Path | None = None) -> SentenceEncoder:
    """Return the network with its published weights, in eval mode.

    Args:
        folder: where ``model.json`` and the files it names lie; by default the cache, which
            ``neuralcov data get sentence-encoder`` fills.
    """
    found = read_weights(require("sentence-encoder", folder) / "model.json")
    network = SentenceEncoder(len(found["module/Embeddings_en"]))
    network.load_state_dict(_renamed(found))
    return network.eval().requires_grad_(False)


class SentenceEncoder(nn.Module):
    """Piece embeddings with sines for positions, two blocks, the mean over the pieces, one tanh layer, length 1.

    Token 0 is padding, and token n + 1 the piece n of the vocabulary.

    Args:
        pieces: of the vocabulary.
        width: length of a piece's vector.
        wide: length of a block's.
        heads: attention heads of each block.
    """

    periods: Tensor

    def __init__(self, pieces: int = 8_002, width: int = 256, wide: int = 512, heads: int = 4) -> None:
        super().__init__()
        self.input_shape = (STEPS,)
        self.embedding = nn.Embedding(pieces, width)
        self.register_buffer("periods", torch.empty(width // 2))
        nn.init.normal_(self.embedding.weight, 0.0, 0.1)
        self.periods.copy_(torch.logspace(0, -4, width // 2))
        self.blocks = nn.ModuleList([EncoderBlock(width, wide, heads), EncoderBlock(wide, wide, heads)])
        self.tanh = nn.Linear(wide, wide)

    @override
    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return ``(batch, 512)`` embeddings of length 1.

        Args:
            tokens: ``(batch, steps)`` whole numbers, padded with zeros behind the text.
            lengths: tokens of each text; counted where left out.
        """
        if lengths is None:
            lengths = (tokens != PADDING).sum(1)
        counted = lengths.to(tokens.device).long().clamp(min=1)[:, None]
        # What stands behind the longest text of a batch counts for nothing.
        tokens = tokens[:, : int(counted.max())]
        places = torch.arange(tokens.shape[1], device=tokens.device)
        present = places < counted
        angles = places.to(self.periods.dtype)[:, None] * self.periods
        # The published graph adds the pieces to themselves with their positions.
        states = 2 * self.embedding((tokens.long() - 1).clamp(min=0)) + torch.cat([angles.sin(), angles.cos()], 1)
        for block in self.blocks:
            states = block(states, present)
        mean = (states * present[:, :, None]).sum(1) / counted
        return functional.normalize(torch.tanh(self.tanh(mean)), dim=1, eps=_EPSILON)


class EncoderBlock(nn.Module):
    """Self-attention and two linear layers, each normalised first and added to what it was given.

    Args:
        width: of what it is given; another one than ``wide`` is made as wide before it is added to.
        wide: of what it gives.
        heads: of attention.
    """

    def __init__(self, width: int, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=_EPSILON), nn.LayerNorm(wide, eps=_EPSILON)
        self.attention, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, wide)
        self.widened = nn.Identity() if width == wide else nn.Linear(width, wide)
        self.inner, self.outer = nn.Linear(wide, 3 * wide), nn.Linear(3 * wide, wide)

    @override
    def forward(self, states: Tensor, present: Tensor) -> Tensor:
        """Return ``(batch, steps, wide)``; only steps that are present are attended to."""
        states = self.widened(states) + self.joined(self._attend(self.norm1(states), present))
        return cast(Tensor, states + self.outer(functional.relu(self.inner(self.norm2(states)))))

    def _attend(self, states: Tensor, present: Tensor) -> Tensor:
        batch, steps, width = states.shape
        parts = self.attention(states).reshape(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=present[:, None, None])
        return attended.transpose(1, 2).reshape(batch, steps, width)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a graph that TensorFlow.js keeps as a file and parts beside it, by name."""
    try:
        (group,) = json.loads(path.read_text(encoding="utf-8"))["weightsManifest"]
        content = b"".join((path.parent / name).read_bytes() for name in group["paths"])
        found, start = {}, 0
        for entry in group["weights"]:
            count = math.prod(entry["shape"])
            if entry["dtype"] == "float32":
                numbers = np.frombuffer(content, "<f4", count, start).reshape(entry["shape"])
                found[str(entry["name"])] = torch.from_numpy(numbers.copy())
            start += 4 * count
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be read as a graph of TensorFlow.js with its weights ({error})") from error
    if start != len(content):
        raise DataError(f"{path}: names {start:,} bytes of weights, and the files beside it hold {len(content):,}")
    return found


def _renamed(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights by their names here; matrices are the other way round there."""

    def bias(name: str) -> Tensor:
        return found[f"{_STACK}{name}/ConcatPartitions/concat"]

    state = {
        "embedding.weight": found["module/Embeddings_en"],
        "periods": found[f"{_STACK}TransformerStack/Layer_0/AddTimingSignal/TimingSignal/ExpandDims_1"][0],
        "tanh.weight": found[f"{_LAST}weights"].T,
        "tanh.bias": found[f"{_LAST}bias"],
    }
    for block in range(2):
        own, here = f"Layer_{block}/TransformerLayer/", f"blocks.{block}."
        for name, theirs in (("norm1", ""), ("norm2", "FFN/")):
            place = f"{own}{theirs}layer_prepostprocess/layer_norm/layer_norm_"
            state |= {f"{here}{name}.weight": bias(f"{place}scale"), f"{here}{name}.bias": bias(f"{place}bias")}
        for name, theirs in (("attention", "qkv_transform_single"), ("joined", "output_transform_single")):
            place = f"{own}MultiheadAttention/{theirs}/"
            state[f"{here}{name}.weight"] = found[f"{_GIVEN}{place}kernel/part_0"][0, 0].T
            state[f"{here}{name}.bias"] = bias(f"{place}bias")
        for name, theirs in (("inner", "conv1"), ("outer", "conv2")):
            state[f"{here}{name}.weight"] = found[f"{_STACK}TransformerStack/{own}FFN/{theirs}/Tensordot/Reshape_1"].T
            state[f"{here}{name}.bias"] = bias(f"{own}FFN/{theirs}/bias")
    state["blocks.0.widened.weight"] = bias("Layer_0/TransformerLayer/dense/kernel").T
    state["blocks.0.widened.bias"] = bias("Layer_0/TransformerLayer/dense/bias")
    return state

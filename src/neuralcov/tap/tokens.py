"""Rows of single tokens: with ``pool="tokens"`` every unmasked token of an input is an input of its own.

A row is one token of one input: that input's first token, its second, and so on, then those of the next input. In
layers that have tokens it holds what they gave for this one; a layer that has fewer, such as the other tower's, or that
was given it by no mask, is absent there. What an input has once, every one of its tokens has: its label, its predicted
class, its name, and what layers without tokens gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.digests import GOLDEN_RATIO, splitmix64
from neuralcov.core.input_names import pick_columns, pick_now
from neuralcov.core.shapes import Bool, Int


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Tell which token of which input every row is.

    Args:
        inputs: the input that each row belongs to, in rising order.
        places: the place of its token in that input, in rising order within it.
        size: the number of inputs.
    """

    inputs: Int[Tensor, "rows"]
    places: Int[Tensor, "rows"]
    size: int

    @classmethod
    def of(cls, layers: Mapping[str, Tensor], masks: Mapping[str, Bool[Tensor, "batch tokens"]]) -> TokenRows | None:
        """Find the tokens that some layer has unmasked; ``None`` if no layer has an axis of tokens.

        Waits for the device, once: how many there are decides the size of everything that follows.

        Args:
            layers: name → ``(batch, tokens, neurons)``, or ``(batch, neurons)`` of layers without tokens.
            masks: name → which tokens count; all where there is none.
        """
        by_token = {name: outputs for name, outputs in layers.items() if outputs.dim() == 3}
        if not by_token:
            return None
        first = next(iter(by_token.values()))
        longest = max(outputs.shape[1] for outputs in by_token.values())
        there = torch.zeros(len(first), longest, dtype=torch.bool, device=first.device)
        # Most layers share one mask and one length.
        for tokens, mask in {(outputs.shape[1], masks.get(name)) for name, outputs in by_token.items()}:
            there[:, :tokens] |= True if mask is None else mask.to(there.device)
        inputs, places = torch.where(there)
        return cls(inputs, places, len(first))

    def of_layers(
        self,
        layers: Mapping[str, Tensor],
        present: Mapping[str, Bool[Tensor, "batch"]],
        masks: Mapping[str, Bool[Tensor, "batch tokens"]],
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return what every layer gave for every row, and which rows each layer has that lacks some.

        Args:
            layers: as for ``of``.
            present: name → which inputs a layer has.
            masks: as for ``of``.
        """
        found, lacking = {}, {}
        known: dict[tuple[int, Tensor | None], Tensor] = {}
        for name, outputs in layers.items():
            inputs = self.inputs.to(outputs.device)
            if outputs.dim() == 2:
                found[name] = outputs[inputs]
                if name in present:
                    lacking[name] = present[name][inputs.to(present[name].device)]
                continue
            kind = outputs.shape[1], masks.get(name)
            if kind not in known:
                known[kind] = self._has(*kind)
            # Beyond a layer's tokens the last one holds the place of what is absent.
            places = self.places.to(outputs.device).clamp(max=max(outputs.shape[1] - 1, 0))
            found[name], lacking[name] = outputs[inputs, places], known[kind].to(outputs.device)
        # Looked at together, so that the device is waited for once.
        parts = list({id(rows): rows for rows in known.values()}.values())
        complete = torch.stack([rows.all().to(self.inputs.device) for rows in parts]).tolist() if parts else []
        whole = {id(rows) for rows, all_there in zip(parts, complete, strict=True) if all_there}
        kept = {key for key, rows in known.items() if id(rows) not in whole}
        for name, outputs in layers.items():
            if outputs.dim() == 3 and (outputs.shape[1], masks.get(name)) not in kept:
                del lacking[name]
        return found, lacking

    def _has(self, tokens: int, mask: Tensor | None) -> Bool[Tensor, "rows"]:
        """Return which rows a layer of so many tokens has."""
        within = self.places < tokens
        if mask is None or not tokens:
            return within
        return within & mask.to(self.inputs.device)[self.inputs, self.places.clamp(max=tokens - 1)]

    @property
    def table(self) -> Int[Tensor, "rows 2"]:
        """The input and the place of every row, side by side."""
        return torch.stack([self.inputs, self.places], dim=1)

    def repeat(self, values: Tensor) -> Tensor:
        """Return for every row what its input has."""
        return values[self.inputs.to(values.device)]

    def keys(self, keys: Int[Tensor, "batch 2"]) -> Int[Tensor, "rows 2"]:
        """Return a key for every token, made of its input's key and its place."""
        own = self.repeat(keys)
        return splitmix64(own + ((self.places.to(own.device) + 1) * GOLDEN_RATIO)[:, None])

    def names(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """Return ids and metadata of the inputs for every row."""
        if not names:
            return {}
        rows = self.inputs.cpu()
        ids = None if names["ids"] is None else pick_now(names["ids"], rows)
        return {"ids": ids, "metadata": pick_columns(names["metadata"], rows)}

"""Whose rows the experts of transformers' mixtures are given, where experts are modules."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from neuralcov.core.shapes import Bool, Int
from neuralcov.tap.layers import module_name

# Their forward takes the tokens of all inputs, one input after the other, and which experts each token goes to. Most
# mixtures keep their experts as parameters instead, whose one output is that of the block.
_BLOCKS = ("SwitchTransformersExperts", "NllbMoeExperts")


class ExpertRows:
    """Reads off where a model's mixtures send their tokens, for the layers within experts.

    Args:
        model: the model.
        layers: the names of its chosen modules.
    """

    def __init__(self, model: nn.Module, layers: Iterable[str]) -> None:
        self._blocks = {name: module for name, module in model.named_modules() if _is_block(module)}
        self._expert: dict[str, tuple[str, int]] = {}
        for layer in layers if self._blocks else ():
            for block in self._blocks:
                number = layer.removeprefix(f"{block}.expert_").partition(".")[0]
                if layer.startswith(f"{block}.expert_") and number.isdigit():
                    self._expert[layer] = block, int(number)
        self._chosen: dict[str, Bool[Tensor, "experts choices tokens"]] = {}

    def __bool__(self) -> bool:
        return bool(self._expert)

    def hooks(self) -> list[RemovableHandle]:
        """Listen to the blocks until the handles are removed."""
        return [module.register_forward_pre_hook(partial(self._enter, name)) for name, module in self._blocks.items()]

    def owners(self, layer: str, output: Tensor, size: int, padding: Any = None) -> Int[Tensor, "rows"] | None:
        """Return the input of each row of an expert's output, -1 for padding; ``None`` for a layer outside experts.

        Args:
            layer: the layer's name.
            output: what it returned.
            size: B, the number of inputs.
            padding: what knows which tokens are padding.
        """
        routed = self.routed(layer, output, size, padding)
        return None if routed is None else torch.where(routed[0] < 0, -1, routed[0] // routed[1])

    def routed(
        self, layer: str, output: Tensor, size: int, padding: Any = None
    ) -> tuple[Int[Tensor, "rows"], int] | None:
        """Return the token of each row of an expert's output, counted through all inputs, and tokens per input.

        The arguments are those of ``owners``.
        """
        if module_name(layer) not in self._expert:
            return None
        block, number = self._expert[module_name(layer)]
        chosen = self._chosen[block]
        tokens = torch.where(chosen[number])[1]
        if size == 0 or chosen.shape[2] % size or output.shape[:1] != tokens.shape:
            return None
        per_input = chosen.shape[2] // size
        weights = None if padding is None else padding.weights(per_input)
        if weights is not None:
            tokens = torch.where(weights.tokens.to(tokens.device).flatten()[tokens], tokens, -1)
        return tokens, per_input

    def _enter(self, name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        choice: Tensor = args[1]
        if choice.dim() == 2:
            choice = nn.functional.one_hot(choice, num_classes=len(module))  # type: ignore[arg-type]
        self._chosen[name] = choice.permute(2, 1, 0) != 0


def _is_block(module: nn.Module) -> bool:
    # Named, not imported: transformers is optional and slow to import.
    return any(c.__name__ in _BLOCKS and c.__module__.startswith("transformers.") for c in type(module).__mro__)

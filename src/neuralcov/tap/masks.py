"""Masks: which tokens of a layer are padding, read off the masks that the modules around it are called with.

While the model runs, a stack holds a :class:`~neuralcov.tap.scopes.Scope` for every module under way that can be called
with a mask; every layer asks it once it has run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.core.ledger import Finding
from neuralcov.tap.inputs import Padding, first_tensor
from neuralcov.tap.scopes import OWN, Mask, Scope, deciding, in_question
from neuralcov.tap.signatures import Form, form_of

_NAMED_IN_FULL = 6


class Masks:
    """The masks met during one run of the model.

    Args:
        size: the number of inputs.
        lengths: what the user said about padding, which serves where no mask does.
    """

    def __init__(self, size: int, lengths: Padding | None) -> None:
        self.size, self.lengths = size, lengths
        self._scopes: list[Scope] = []
        self._masked = 0
        self._tokens: list[tuple[Mask, Tensor]] = []
        self.ambiguous: list[str] = []
        self.unmasked: list[str] = []
        self.concerned: list[Mask] = []

    def enter(self, form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Begin a module."""
        scope = Scope(form, args, kwargs, self.size)
        self._masked += scope.masked
        self._scopes.append(scope)

    def leave(self) -> None:
        """End the module begun last."""
        self._masked -= self._scopes.pop().masked

    def of_layer(self, layer: str, args: Any) -> LayerMasks | None:
        """What masks a layer that has just run on ``args``, ``None`` if nothing does."""
        if not self._masked and self.lengths is None:
            return None
        return LayerMasks(self, layer, tuple(self._scopes) if self._masked else (), first_tensor(args))

    def tokens_of(self, mask: Mask) -> Tensor:
        """Where the tokens of a mask are, worked out once for all layers that it masks."""
        for known, tokens in self._tokens:
            if mask.same(known):
                return tokens
        self._tokens.append((mask, mask.tokens()))
        return self._tokens[-1][1]


@dataclass(frozen=True, eq=False)
class LayerMasks:
    """The masks around one layer.

    Args:
        masks: those of the whole run.
        layer: its name.
        scopes: the modules around it, the innermost last.
        source: what it was called with.
    """

    masks: Masks
    layer: str
    scopes: tuple[Scope, ...]
    source: Tensor | None

    def over(self, tokens: int) -> Tensor | None:
        """The mask of the layer's tokens, ``(batch, tokens)``; ``None`` where none is known to be theirs."""
        found = deciding(self.scopes, self.masks.size, tokens, self.source)
        if len(found) == 1:
            return self.masks.tokens_of(found[0])
        lengths = self.masks.lengths
        mask = None if lengths is None else lengths.over(tokens)
        if mask is None:
            self._note(found)
        return mask

    def steps(self, taken: int) -> Padding | None:
        """Which inputs have which steps of a recurrent layer; lengths say so however many steps it took."""
        found = deciding(self.scopes, self.masks.size, taken, self.source)
        if len(found) == 1:
            return Padding.of_mask(self.masks.tokens_of(found[0]))
        if self.masks.lengths is None:
            self._note(found)
        return self.masks.lengths

    def _note(self, found: Sequence[Mask]) -> None:
        """Remember that the layer is not masked, if it might have been."""
        concerned = found or in_question(self.scopes, self.masks.size, self.source)
        if found:
            self.masks.ambiguous.append(self.layer)
        elif concerned or self.masks.lengths is not None:
            self.masks.unmasked.append(self.layer)
        self.masks.concerned += [mask for mask in concerned if not any(mask.same(m) for m in self.masks.concerned)]


class MaskNotes:
    """Layers whose tokens could not be masked, over all runs of a model.

    Whether a mask masks anything is known to its device alone, which is asked when somebody reads the findings.
    """

    def __init__(self) -> None:
        self._padded: dict[tuple[bool, tuple[str, ...]], Tensor] = {}

    def take(self, masks: Masks) -> None:
        """Remember what one run of the model could not mask."""
        for ambiguous, layers in ((False, masks.unmasked), (True, masks.ambiguous)):
            if not layers:
                continue
            known = [masks.tokens_of(mask) for mask in masks.concerned]
            if masks.lengths is not None:
                known.append(masks.lengths.mask)
            key = ambiguous, tuple(layers)
            if key not in self._padded:
                # No tensor of inference mode, which could not be written to outside of it.
                with torch.inference_mode(False):
                    self._padded[key] = torch.zeros((), dtype=torch.bool, device=known[0].device)
            for tokens in known:
                self._padded[key].logical_or_(tokens.all().logical_not().to(self._padded[key].device))

    def findings(self) -> list[Finding]:
        """One sentence for layers that no mask fits, one for those that several fit."""
        named: dict[bool, dict[str, None]] = {False: {}, True: {}}
        for (ambiguous, layers), padded in self._padded.items():
            if bool(padded):
                named[ambiguous] |= dict.fromkeys(layers)
        found = []
        if named[False]:
            found.append(
                f"the tokens of {_listed(named[False])} could not be masked though a mask was given, so that padding "
                "counts among them: give the module around them a mask of their length, pass lengths=, or leave them "
                "out with layers="
            )
        if named[True]:
            found.append(
                f"two masks fit the tokens of {_listed(named[True])}, so that neither was used and padding counts "
                "among them: give one mask to the module around them, or leave them out with layers="
            )
        return [Finding("masks", sentence) for sentence in found]


def _listed(layers: Collection[str]) -> str:
    names = [repr(layer) for layer in layers]
    shown = ", ".join(names[:_NAMED_IN_FULL])
    more = len(names) - _NAMED_IN_FULL
    return f"layer {shown}" if len(names) == 1 else f"layers {shown}" + (f" and {more} more" if more > 0 else "")


def mask_takers(model: nn.Module, chosen: Mapping[str, nn.Module]) -> list[tuple[nn.Module, Form]]:
    """The modules around layers, and layers, that can be called with a mask.

    Where the model itself can, the parts it consists of are watched too: what they are called with tells towers apart.
    """
    layers = {id(module) for module in chosen.values()}
    around: dict[str, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if id(module) in layers:
            parts = name.split(".")
            around |= dict.fromkeys((".".join(parts[:end]) for end in range(len(parts) + 1)), module)
    takers: dict[int, tuple[nn.Module, Form]] = {}
    parts_count = _can_be_masked(form_of(model))
    for name in around:
        module = model.get_submodule(name)
        form = form_of(module)
        is_part = parts_count and name.count(".") == 0 and id(module) not in layers
        if is_part or _can_be_masked(form):
            takers[id(module)] = (module, form)
    return list(takers.values())


def _can_be_masked(form: Form) -> bool:
    return form.any_keyword or form.mappings or any(name in form.keywords for name in OWN)

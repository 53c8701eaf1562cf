"""Masks: which tokens of a layer are padding, read off the masks that the modules around it are called with.

While the model runs, a stack holds a ``Scope`` for every module under way that can be called
with a mask; every layer asks it once it has run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.core.findings import Finding
from neuralcov.tap.inputs import Padding, TokenWeights, first_tensor
from neuralcov.tap.scopes import OWN, Mask, Scope, Taker, deciding, in_question
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
        self._entered: list[Scope | None] = []
        self._innermost: Scope | None = None
        self._weights: list[tuple[Mask, TokenWeights]] = []
        self.used: dict[str, TokenWeights] = {}
        """What decided which tokens of a layer count, by layer."""
        self.missed: list[tuple[str, list[Mask], bool]] = []

    def enter(self, taker: Taker, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Begin a module. Those around the first one that has a mask need not be remembered."""
        found = taker.masks(args, kwargs, self.size)
        if found or self._innermost is not None:
            self._innermost = Scope(taker, args, kwargs, found, self._innermost)
            self._entered.append(self._innermost)
        else:
            self._entered.append(None)

    def leave(self) -> None:
        """End the module begun last."""
        scope = self._entered.pop()
        if scope is not None:
            self._innermost = scope.parent

    def of_layer(self, layer: str, args: tuple[Any, ...], kwargs: Any, taker: Taker | None) -> LayerMasks | None:
        """Return what masks a layer that has just run, ``None`` if nothing does.

        Args:
            layer: its name.
            args: what it was called with by position.
            kwargs: what it was called with by keyword, if it takes masks itself.
            taker: its kind, if it takes masks itself.
        """
        scope = self._innermost
        if taker is not None:
            found = taker.masks(args, kwargs, self.size)
            if found or scope is not None:
                scope = Scope(taker, args, kwargs, found, scope)
        if scope is None and self.lengths is None:
            return None
        return LayerMasks(self, layer, scope, first_tensor(args))

    def weights_of(self, mask: Mask) -> TokenWeights:
        """Return what tokens count under a mask, the same for all layers that it masks."""
        for known, weights in self._weights:
            if mask.same(known):
                return weights
        self._weights.append((mask, TokenWeights(mask.tokens())))
        return self._weights[-1][1]


@dataclass(frozen=True, eq=False)
class LayerMasks:
    """The masks around one layer.

    Args:
        masks: those of the whole run.
        layer: its name.
        scope: the module around it.
        source: what it was called with.
    """

    masks: Masks
    layer: str
    scope: Scope | None
    source: Tensor | None

    def weights(self, tokens: int) -> TokenWeights | None:
        """Return what the layer's tokens count, ``None`` where no mask is known to be theirs."""
        found = deciding(self.scope, self.masks.size, tokens, self.source)
        lengths = self.masks.lengths
        weights: TokenWeights | None
        if len(found) == 1:
            weights = self.masks.weights_of(found[0])
        else:
            weights = None if lengths is None else lengths.weights(tokens)
        if weights is None:
            self._note(found)
        else:
            self.masks.used[self.layer] = weights
        return weights

    def steps(self, taken: int) -> Padding | None:
        """Return which inputs have which steps of a recurrent layer; lengths say so however many steps it took."""
        found = deciding(self.scope, self.masks.size, taken, self.source)
        if len(found) == 1:
            return Padding.of_mask(self.masks.weights_of(found[0]).tokens)
        if self.masks.lengths is None:
            self._note(found)
        return self.masks.lengths

    def _note(self, found: Sequence[Mask]) -> None:
        """Remember that the layer is not masked, if it might have been."""
        concerned = found or in_question(self.scope, self.masks.size, self.source)
        if concerned or self.masks.lengths is not None:
            self.masks.missed.append((self.layer, list(concerned), len(found) > 1))


class MaskNotes:
    """Layers whose tokens could not be masked, over all runs of a model.

    Whether a mask masks anything is known to its device alone, which is asked when somebody reads the findings.
    """

    def __init__(self) -> None:
        self._padded: dict[tuple[bool, tuple[str, ...]], Tensor] = {}

    def take(self, masks: Masks) -> None:
        """Remember what one run of the model could not mask."""
        for several in (False, True) if masks.missed else ():
            missed = [(layer, concerned) for layer, concerned, ambiguous in masks.missed if ambiguous is several]
            if not missed:
                continue
            known = [masks.weights_of(mask).tokens for _, concerned in missed for mask in concerned]
            if masks.lengths is not None:
                known.append(masks.lengths.mask)
            key = several, tuple(layer for layer, _ in missed)
            if key not in self._padded:
                # No tensor of inference mode, which could not be written to outside of it.
                with torch.inference_mode(False):
                    self._padded[key] = torch.zeros((), dtype=torch.bool, device=known[0].device)
            for tokens in {id(tokens): tokens for tokens in known}.values():
                self._padded[key].logical_or_(tokens.all().logical_not().to(self._padded[key].device))

    def findings(self) -> list[Finding]:
        """Return one sentence for layers that no mask fits, one for those that several fit."""
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


@dataclass(frozen=True, eq=False)
class Watched:
    """The modules of a model whose calls may tell masks.

    Args:
        around: those around layers.
        layers: layers that can be called with masks themselves, by name.
    """

    around: list[tuple[nn.Module, Taker]]
    layers: dict[str, Taker]

    @classmethod
    def of(cls, model: nn.Module, chosen: Mapping[str, nn.Module]) -> Watched:
        """Look at the signatures of the model's modules.

        Where the model itself can be called with a mask, the parts it consists of are watched too: what they are called
        with tells towers apart.
        """
        forms = {name: form_of(module) for name, module in chosen.items()}
        layers = {name: Taker(form) for name, form in forms.items() if _can_be_masked(form)}
        within = {id(module) for module in chosen.values()}
        names: dict[str, None] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            if id(module) in within and name:
                parts = name.split(".")
                names |= dict.fromkeys(".".join(parts[:end]) for end in range(len(parts)))
        around: dict[int, tuple[nn.Module, Taker]] = {}
        towers = _can_be_masked(form_of(model))
        for name in names:
            module = model.get_submodule(name)
            form = form_of(module)
            if _can_be_masked(form) or (towers and "." not in name):
                around[id(module)] = (module, Taker(form))
        return cls(list(around.values()), layers)


def _can_be_masked(form: Form) -> bool:
    return form.any_keyword or form.mappings or any(name in form.keywords for name in OWN)

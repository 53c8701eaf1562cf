"""Modules under way, the masks they were called with, and which of these is of a layer's tokens.

A mask belongs to the module whose tokens it masks: the innermost module around a layer that was called with a mask of
shape (inputs, tokens of the layer) decides. Length alone proves nothing. Masks of other tokens are left out by their
name (``encoder_attention_mask``), by the part of the model (a decoder's tokens are not masked by its encoder's mask,
nor the other way round), and by what modules are called with (an image tower given no tensor as long as the mask makes
tokens of its own).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from neuralcov.tap.signatures import Form

# Masks of a module's own tokens; the others are of the tokens of an encoder that it attends to.
OWN = frozenset(
    {
        "attention_mask",
        "decoder_attention_mask",
        "src_key_padding_mask",
        "tgt_key_padding_mask",
        "key_padding_mask",
        "padding_mask",
    }
)
_NAMES = OWN | {"encoder_attention_mask", "memory_key_padding_mask"}
# These are nonzero at tokens; all others are true, or minus infinity, at padding.
_NONZERO_AT_TOKENS = frozenset({"attention_mask", "decoder_attention_mask", "encoder_attention_mask"})
# Of the tokens of a decoder, where the module called with them has an encoder too.
_OF_DECODER = frozenset({"decoder_attention_mask", "tgt_key_padding_mask"})
# What the tokens are that a mask is of, where those before them lie in a cache.
_OWN_TOKENS = {
    "attention_mask": ("input_ids", "inputs_embeds"),
    "decoder_attention_mask": ("decoder_input_ids", "decoder_inputs_embeds"),
}
# What decoders take, and attention to an encoder does not.
_OF_DECODERS = frozenset({"encoder_attention_mask", "input_ids", "inputs_embeds"})


@dataclass(frozen=True, eq=False)
class Mask:
    """A mask as a module was called with it."""

    name: str
    given: Tensor

    def same(self, other: Mask) -> bool:
        """Return whether two arguments are one mask."""
        same_sense = (self.name in _NONZERO_AT_TOKENS) == (other.name in _NONZERO_AT_TOKENS)
        return self.given is other.given and same_sense

    def tokens(self) -> Tensor:
        """Return where the tokens are, ``(batch, tokens)``."""
        given = self.given
        if self.name in _NONZERO_AT_TOKENS:
            return given != 0
        if given.is_floating_point():
            # Added to scores: minus infinity, or the least number that stands for it.
            return given > torch.finfo(given.dtype).min
        return given == 0


class Taker:
    """A kind of module that can be called with masks.

    Args:
        form: what it can be called with.
        mappings: whether to look for masks in dictionaries that it is called with.
    """

    def __init__(self, form: Form, *, mappings: bool = False) -> None:
        self.form = form
        self._mappings = mappings or form.mappings
        self._places = tuple((index, name) for index, name in enumerate(form.positional) if name in _NAMES)

    def masks(self, args: tuple[Any, ...], kwargs: dict[str, Any], size: int) -> list[Mask]:
        """Return the masks ``(size, tokens)`` among the arguments of a call."""
        found = [Mask(n, v) for n, v in kwargs.items() if n in _NAMES and _is_mask(v, size)]
        for index, name in self._places:
            if index < len(args) and _is_mask(args[index], size):
                found.append(Mask(name, args[index]))
        if self._mappings:
            for part in (*args, *kwargs.values()):
                if not isinstance(part, Tensor) and isinstance(part, Mapping):
                    found += [Mask(n, part[n]) for n in _NAMES & part.keys() if _is_mask(part[n], size)]
        return found


def _is_mask(value: Any, size: int) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and value.shape[0] == size


class Scope:
    """A module under way. What it was called with beside masks is looked at when a layer asks for one.

    Args:
        taker: its kind.
        args: what it was called with by position.
        kwargs: what it was called with by keyword.
        found: the masks among these.
        parent: the module around it.
    """

    def __init__(
        self, taker: Taker, args: tuple[Any, ...], kwargs: dict[str, Any], found: list[Mask], parent: Scope | None
    ) -> None:
        self._taker, self._args, self._kwargs = taker, args, kwargs
        self._found, self.parent = found, parent
        self._decided: dict[tuple[int, bool, bool, bool], list[Mask]] = {}
        self._last: dict[tuple[str, int], Mask] = {}

    @cached_property
    def _given(self) -> dict[str, Any]:
        return self._taker.form.arguments(self._args, self._kwargs)

    @cached_property
    def _attended(self) -> Tensor | None:
        """Return the tokens that an attention is given beside its own; what masks them is no mask of its own."""
        states = _tensor(self._given, "key_value_states")
        if states is None and not self._taker.form.keywords & _OF_DECODERS:
            states = _tensor(self._given, "encoder_hidden_states")
        if states is not None:
            return states
        query, key = _tensor(self._given, "query"), _tensor(self._given, "key")
        return None if query is None or query is key else key

    @cached_property
    def encoder(self) -> Tensor | None:
        """Return the tokens of an encoder that the module attends to."""
        return _tensor(self._given, "encoder_hidden_states", "memory") if self._attended is None else self._attended

    @property
    def is_decoder(self) -> bool:
        """Return whether the module has tokens of its own beside those of an encoder, and layers for them."""
        return self.encoder is not None and self._attended is None

    @cached_property
    def declines(self) -> bool:
        """Return whether the module could have been called with a mask of its own tokens and was called with none."""
        # An attention module, whose mask has another name, does not tell whose tokens it is given.
        could = any(name in self._taker.form.keywords and name != "key_padding_mask" for name in OWN)
        return could and self._attended is None and all(self._given.get(name) is None for name in OWN)

    @cached_property
    def masks(self) -> list[Mask]:
        """Return the masks of the module's own tokens."""
        return [mask for mask in self._found if mask.name in OWN] if self._attended is None else []

    @cached_property
    def encoder_masks(self) -> list[Mask]:
        """Return the masks of the tokens that it attends to."""
        if self._attended is not None:
            return self._found
        return [mask for mask in self._found if mask.name not in OWN] if self.is_decoder else []

    @cached_property
    def _tensors(self) -> list[Tensor]:
        masks = {id(mask.given) for mask in self._found}
        parts = (*self._args, *self._kwargs.values())
        return [tensor for part in parts for tensor in _tensors(part) if id(tensor) not in masks]

    @cached_property
    def _lengths(self) -> set[int]:
        return {length for tensor in self._tensors for length in tensor.shape}

    def makes_tokens(self, size: int, tokens: int) -> bool:
        """Return whether the module was called with tensors none of which is so many tokens long."""
        return bool(self._lengths) and tokens not in self._lengths and size * tokens not in self._lengths

    def shares_argument(self, other: Scope) -> bool:
        """Return whether both modules were called with one and the same tensor."""
        theirs = {id(tensor) for tensor in other._tensors}
        return any(id(tensor) in theirs for tensor in self._tensors)

    def candidates(self, of_encoder: bool) -> list[Mask]:
        """Return the masks that may be of a layer's tokens: the module's own, or those of an encoder it attends to."""
        return self.encoder_masks if of_encoder and self.encoder is not None else self.masks

    def _over(self, mask: Mask, tokens: int) -> Mask | None:
        """Return the mask of so many tokens: the mask itself, or its end where the tokens before lie in a cache."""
        length = mask.given.shape[1]
        if length == tokens:
            return mask
        own = _tensor(self._given, *_OWN_TOKENS.get(mask.name, ()))
        cached = self._given.get("past_key_values") is not None and own is not None and own.shape[1:2] == (tokens,)
        if not cached or length < tokens:
            return None
        return self._last.setdefault((mask.name, tokens), Mask(mask.name, mask.given[:, length - tokens :]))

    def decide(self, size: int, tokens: int, of_encoder: bool, in_decoder: bool, in_unmasked: bool) -> list[Mask]:
        """Return the masks of the innermost module, from this one outwards, that has any for a layer's tokens.

        Args:
            size: the number of inputs.
            tokens: how many tokens the layer has.
            of_encoder: whether they are those of an encoder that a decoder attends to.
            in_decoder: whether a module between this one and the layer is a decoder.
            in_unmasked: whether one between them could have been called with a mask and was not.
        """
        key = (tokens, of_encoder, in_decoder, in_unmasked)
        if key not in self._decided:
            found: list[Mask] = []
            for mask in self.candidates(of_encoder):
                if mask.name in _OF_DECODER:
                    reaches = not of_encoder and (in_decoder or not in_unmasked)
                else:
                    reaches = of_encoder or self.is_decoder or not in_decoder
                fitting = self._over(mask, tokens) if reaches else None
                if fitting is not None and not any(fitting.same(other) for other in found):
                    found.append(fitting)
            if not found and self.parent is not None and not self.makes_tokens(size, tokens):
                inside = in_decoder or self.is_decoder, in_unmasked or self.declines
                found = self.parent.decide(size, tokens, of_encoder, *inside)
            self._decided[key] = found
        return self._decided[key]


def deciding(scope: Scope | None, size: int, tokens: int, source: Tensor | None) -> list[Mask]:
    """Return the masks of the innermost module that has any for a layer's tokens: only a single one decides.

    Args:
        scope: the module around the layer.
        size: the number of inputs.
        tokens: how many tokens the layer has.
        source: what the layer was called with.
    """
    if scope is None:
        return []
    return scope.decide(size, tokens, _works_for_encoder(scope, source), in_decoder=False, in_unmasked=False)


def in_question(scope: Scope | None, size: int, source: Tensor | None) -> list[Mask]:
    """Return the masks that may be of a layer's tokens although none was found to be."""
    of_encoder = _works_for_encoder(scope, source)
    judged: list[Mask] = []
    concerned = []
    inner: Scope | None = None
    while scope is not None:
        for mask in scope.candidates(of_encoder):
            # A mask handed on belongs to the inner module.
            if any(mask.same(other) for other in judged):
                continue
            judged.append(mask)
            if inner is None or not _is_other_tower(inner, scope, mask, size):
                concerned.append(mask)
        inner, scope = scope, scope.parent
    return concerned


def _works_for_encoder(scope: Scope | None, source: Tensor | None) -> bool:
    """Return whether a layer of a decoder is given the encoder's tokens, as an attention's keys and values are."""
    while scope is not None and source is not None:
        if scope.encoder is source:
            return True
        scope = scope.parent
    return False


def _is_other_tower(inner: Scope, outer: Scope, mask: Mask, size: int) -> bool:
    """Return whether a module works on another argument than the mask's, as on images beside texts."""
    elsewhere = inner.makes_tokens(size, mask.given.shape[1])
    return elsewhere and not inner.is_decoder and inner.shares_argument(outer)


def _tensor(arguments: Mapping[str, Any], *names: str) -> Tensor | None:
    return next((arguments[name] for name in names if isinstance(arguments.get(name), Tensor)), None)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))

"""Modules under way, the masks they were called with, and which of these is of a layer's tokens.

A mask belongs to the module whose tokens it masks: the innermost module around a layer that was called with a mask of
shape (inputs, tokens of the layer) decides. Length alone proves nothing. Masks of other tokens are left out by their
name (``encoder_attention_mask``), by the part of the model (a decoder's tokens are not masked by its encoder's mask,
nor the other way round), and by what modules are called with (an image tower given no tensor as long as the mask makes
tokens of its own).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from neuralcov.tap.signatures import Form

# Masks of a module's own tokens, and of the tokens of an encoder that it attends to.
OWN = (
    "attention_mask",
    "decoder_attention_mask",
    "src_key_padding_mask",
    "tgt_key_padding_mask",
    "key_padding_mask",
    "padding_mask",
)
_ENCODERS = ("encoder_attention_mask", "memory_key_padding_mask")
# These are nonzero at tokens; all others are true, or minus infinity, at padding.
_NONZERO_AT_TOKENS = frozenset({"attention_mask", "decoder_attention_mask", "encoder_attention_mask"})
# Of the tokens of a decoder, where the module called with them has an encoder too.
_OF_DECODER = frozenset({"decoder_attention_mask", "tgt_key_padding_mask"})
# What decoders take, and attention to an encoder does not.
_OF_DECODERS = frozenset({"encoder_attention_mask", "input_ids", "inputs_embeds"})


@dataclass(frozen=True, eq=False)
class Mask:
    """A mask as a module was called with it."""

    name: str
    given: Tensor

    def same(self, other: Mask) -> bool:
        """Whether two arguments are one mask."""
        same_sense = (self.name in _NONZERO_AT_TOKENS) == (other.name in _NONZERO_AT_TOKENS)
        return self.given is other.given and same_sense

    def tokens(self) -> Tensor:
        """Where the tokens are, ``(batch, tokens)``."""
        given = self.given
        if self.name in _NONZERO_AT_TOKENS:
            return given != 0
        if given.is_floating_point():
            # Added to scores: minus infinity, or the least number that stands for it.
            return given > torch.finfo(given.dtype).min
        return given == 0


class Scope:
    """A module under way.

    Args:
        form: what it can be called with.
        args: what it was called with by position.
        kwargs: what it was called with by keyword.
        size: the number of inputs, which masks must be of.

    ``masks`` are of its own tokens and ``encoder_masks`` of those that it attends to, which ``encoder`` holds. A
    module that ``is_decoder`` has tokens of its own beside these; one that ``declines`` could have had a mask and has
    none.
    """

    def __init__(self, form: Form, args: tuple[Any, ...], kwargs: dict[str, Any], size: int) -> None:
        given = form.arguments(args, kwargs)
        self._parts = (*args, *kwargs.values())
        sources = (given, *(part for part in self._parts if _is_mapping(part)))
        self.masks = [mask for source in sources for mask in _masks(source, OWN, size)]
        self.encoder_masks: list[Mask] = []
        states = _given(given, "encoder_hidden_states", "memory")
        self.is_decoder = states is not None
        if self.is_decoder:
            self.encoder_masks = _masks(given, _ENCODERS, size)
        # An attention module, whose mask has another name, does not tell whose tokens it is given.
        self.declines = any(name in form.keywords and name != "key_padding_mask" for name in OWN) and all(
            given.get(name) is None for name in OWN
        )
        attended = _attended(form, given)
        self.encoder = states if attended is None else attended
        if attended is not None:
            self.is_decoder = self.declines = False
            self.masks, self.encoder_masks = [], self.masks

    @property
    def masked(self) -> bool:
        """Whether the module was called with any mask."""
        return bool(self.masks or self.encoder_masks)

    @cached_property
    def _tensors(self) -> list[Tensor]:
        masks = {id(mask.given) for mask in (*self.masks, *self.encoder_masks)}
        return [tensor for part in self._parts for tensor in _tensors(part) if id(tensor) not in masks]

    def makes_tokens(self, size: int, tokens: int) -> bool:
        """Whether the module was called with tensors none of which is so many tokens long."""
        lengths = {length for tensor in self._tensors for length in tensor.shape}
        return bool(lengths) and tokens not in lengths and size * tokens not in lengths

    def shares_argument(self, other: Scope) -> bool:
        """Whether both modules were called with one and the same tensor."""
        theirs = {id(tensor) for tensor in other._tensors}
        return any(id(tensor) in theirs for tensor in self._tensors)


def deciding(scopes: Sequence[Scope], size: int, tokens: int, source: Tensor | None) -> list[Mask]:
    """The masks of the innermost module that has any for a layer's tokens: one decides, several settle nothing.

    Args:
        scopes: the modules around the layer, the innermost last.
        size: the number of inputs.
        tokens: how many tokens the layer has.
        source: what the layer was called with.
    """
    of_encoder = works_for_encoder(scopes, source)
    in_decoder = in_unmasked = False
    for scope in reversed(scopes):
        found: list[Mask] = []
        for mask in _candidates(scope, of_encoder):
            if mask.name in _OF_DECODER:
                reaches = not of_encoder and (in_decoder or not in_unmasked)
            else:
                reaches = of_encoder or scope.is_decoder or not in_decoder
            if reaches and mask.given.shape[1] == tokens and not any(mask.same(other) for other in found):
                found.append(mask)
        if found or scope.makes_tokens(size, tokens):
            return found
        in_decoder |= scope.is_decoder
        in_unmasked |= scope.declines
    return []


def in_question(scopes: Sequence[Scope], size: int, source: Tensor | None) -> list[Mask]:
    """The masks that may be of a layer's tokens although none was found to be."""
    of_encoder = works_for_encoder(scopes, source)
    judged: list[Mask] = []
    concerned = []
    for index in reversed(range(len(scopes))):
        for mask in _candidates(scopes[index], of_encoder):
            # A mask handed on belongs to the inner module.
            if any(mask.same(other) for other in judged):
                continue
            judged.append(mask)
            if index + 1 == len(scopes) or not _is_other_tower(scopes[index + 1], scopes[index], mask, size):
                concerned.append(mask)
    return concerned


def works_for_encoder(scopes: Sequence[Scope], source: Tensor | None) -> bool:
    """Whether a layer of a decoder is given the encoder's tokens, as the keys and values of its attention are."""
    return source is not None and any(scope.encoder is source for scope in scopes)


def _candidates(scope: Scope, of_encoder: bool) -> list[Mask]:
    return scope.encoder_masks if of_encoder and scope.encoder is not None else scope.masks


def _is_other_tower(inner: Scope, outer: Scope, mask: Mask, size: int) -> bool:
    """Whether a module works on an argument of the outer one that the mask cannot be of, as on images beside texts."""
    elsewhere = inner.makes_tokens(size, mask.given.shape[1])
    return elsewhere and not inner.is_decoder and inner.shares_argument(outer)


def _attended(form: Form, given: Mapping[str, Any]) -> Tensor | None:
    """The tokens that an attention is given beside its own, so that what masks them is no mask of its own."""
    states = _given(given, "key_value_states")
    if states is None and not form.keywords & _OF_DECODERS:
        states = _given(given, "encoder_hidden_states")
    if states is not None:
        return states
    query, key = given.get("query"), _given(given, "key")
    return key if isinstance(query, Tensor) and query is not key else None


def _given(arguments: Mapping[str, Any], *names: str) -> Tensor | None:
    return next((arguments[name] for name in names if isinstance(arguments.get(name), Tensor)), None)


def _masks(source: Mapping[str, Any], names: Sequence[str], size: int) -> list[Mask]:
    found = [(name, source.get(name)) for name in names]
    return [Mask(n, v) for n, v in found if isinstance(v, Tensor) and v.dim() == 2 and v.shape[0] == size]


def _is_mapping(value: Any) -> bool:
    return not isinstance(value, Tensor) and isinstance(value, Mapping)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(value.values()))

"""Suites of texts: substituted and shuffled words, variants of one text, random words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.pools import Makers, few_of
from neuralcov_lab.experiments.suites import ShuffledWords, SubstitutedWords

SHARES, FURTHER = (0.1,), (0.3,)
# Tokens below stand for padding and for words that are not listed.
FIRST_WORD = 2


def text_makers(context: ExperimentContext, test: Samples, batch: int) -> Makers:
    """Return what makes suites of texts."""

    def shuffled(number: int, count: int) -> Iterable[Any]:
        return ShuffledWords(few_of(context, test, number), count, batch, context.combined_seed(83, number))

    def substituted(share: float) -> Callable[[int, int], Iterable[Any]]:
        return lambda number, count: SubstitutedWords(
            few_of(context, test, number), count, share, batch, context.combined_seed(89, number)
        )

    def variant(number: int, count: int) -> Iterable[Any]:
        one = test.take(context.rows(len(test), 1, 31, number))
        return SubstitutedWords(one, count, 0.2, batch, context.combined_seed(97, number))

    return Makers(
        {"shuffled copies": shuffled, **{_name(share): substituted(share) for share in SHARES}},
        {_name(share): substituted(share) for share in FURTHER},
        variant,
        {
            "random words": lambda: random_words(test, context.generator(37)).named_batches(batch),
            "words of other texts": lambda: mixed_words(test, context.generator(37)).named_batches(batch),
        },
    )


def _name(share: float) -> str:
    return f"copies, {share:.0%} substituted"


def random_words(test: Samples, random: torch.Generator) -> Samples:
    """Return texts as long as these, of words drawn from the vocabulary with the same chance each."""
    if test.words is None:
        raise InputError(f"{test.name} has no vocabulary: random words are for texts")
    tokens = torch.randint(FIRST_WORD, len(test.words), test.inputs.shape, generator=random, device=random.device)
    return _replaced(test, tokens)


def mixed_words(test: Samples, random: torch.Generator) -> Samples:
    """Return texts as long as these, of words drawn from all of them, so that frequent words stay frequent."""
    words = test.inputs[test.inputs >= FIRST_WORD]
    chosen = torch.randint(len(words), test.inputs.shape, generator=random, device=random.device)
    return _replaced(test, words[chosen])


def _replaced(test: Samples, tokens: torch.Tensor) -> Samples:
    return replace(test, inputs=torch.where(test.inputs > 0, tokens.to(test.inputs.dtype), test.inputs))

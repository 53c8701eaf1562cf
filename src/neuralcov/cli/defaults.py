"""The criteria that commands measure by if nobody names any."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CoverageWarning, InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.criteria import DSC, KMNC, LCC, NC, NLC, SNAC, TKNC, BitmapCriterion

# More training traces cost time and hardly change the surprise of an input.
_TRACES = 20_000


def without_training_data() -> list[Criterion[Any]]:
    """Return criteria that need no training data."""
    return [NLC(), NC(), TKNC()]


def with_training_data(layers: Sequence[str]) -> list[Criterion[Any]]:
    """Return what the documentation recommends: LCC, KMNC and SNAC, and DSC on the last layer before the output.

    >>> [criterion.name for criterion in with_training_data(["conv", "fc1", "fc2"])]
    ['LCC', 'KMNC(100)', 'SNAC', 'DSC(0.1, layers=fc1, traces=20000)']
    """
    last = layers[-2] if len(layers) > 1 else layers[-1]
    # Names of recurrent steps hold brackets, which globs read otherwise.
    chosen = (last,) if set(last) & set("*?[]|!") else last
    return [LCC(), KMNC(100), SNAC(), DSC(0.1, layers=chosen, traces=_TRACES)]


def with_errors(criteria: Sequence[Criterion[Any]]) -> list[Criterion[Any]]:
    """Let criteria that tick off cells keep what their standard errors need, so that suites can be compared by them.

    >>> with_errors([NC(0.5), NLC()])[0].parameters["errors"]
    True
    """
    return [replace(each, errors=True) if isinstance(each, BitmapCriterion) else each for each in criteria]


def layers_of(
    net: nn.Module, layers: str | None, data: Iterable[Any], **options: Any
) -> tuple[list[str], Iterable[Any]]:
    """Return the layers that the first batch of some data shows, and data that still have that batch."""
    batches: Iterator[Any] = iter(data)
    first = next(batches, None)
    if first is None:
        raise InputError("the data gave no batch: nothing to measure")
    look = Coverage(net, [NC()], layers=layers, **options)
    with warnings.catch_warnings():
        # The measurement itself will say it.
        warnings.simplefilter("ignore", CoverageWarning)
        look.assess([first], progress=False)
    assert look.layout is not None
    return list(look.layout), itertools.chain([first], batches) if batches is data else data

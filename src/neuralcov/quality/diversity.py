"""How varied faults are: the classes they are taken for, and how evenly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping


def classes_reached(predicted: Iterable[int] | Mapping[int, int]) -> int:
    """How many classes the faults are predicted as; a mapping counts how often each.

    >>> classes_reached([3, 3, 5]), classes_reached({})
    (2, 0)
    """
    return len(_counts(predicted))


def scaled_entropy(predicted: Iterable[int] | Mapping[int, int]) -> float:
    """``−Σ p ln p / ln(classes reached)`` over the predicted classes of the faults; 0 for a single class.

    1.0: every class reached is reached as often. (The paper prints a factor 1/|C|, which cannot give its own table.)

    >>> scaled_entropy([0, 0, 1, 1]), scaled_entropy([4, 4]), round(scaled_entropy({0: 3, 1: 1}), 4)
    (1.0, 0.0, 0.8113)
    """
    counts = _counts(predicted)
    if len(counts) < 2:
        return 0.0
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values()) / math.log(len(counts))


def _counts(predicted: Iterable[int] | Mapping[int, int]) -> dict[int, int]:
    counted = predicted if isinstance(predicted, Mapping) else Counter(predicted)
    return {label: count for label, count in counted.items() if count}

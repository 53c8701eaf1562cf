"""What counts of kinds say about the kinds that were not met yet, as ecologists ask of species.

A suite is a sample, its inputs are individuals, and each shows one kind. f₁ kinds were shown by one input, f₂ by two.
Counts are whole numbers of at least 1; everything is worked out in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.shapes import Float, Int


@dataclass(frozen=True)
class Estimate:
    """Hold an estimate and its standard error."""

    value: float
    error: float


def shown_times(counts: Int[Tensor, "kinds"], times: int) -> int:
    """Return how many kinds were shown so many times."""
    return int((counts == times).sum())


def chance_of_new(counts: Int[Tensor, "kinds"]) -> float:
    """Return how likely the next input is to show a kind that none has shown: f₁/n (Good, 1953, after Turing).

    >>> chance_of_new(torch.tensor([1, 1, 5]))
    0.2857142857142857
    """
    inputs = int(counts.sum())
    return shown_times(counts, 1) / inputs if inputs else 1.0


def kinds_to_come(once: float, twice: float) -> Estimate:
    """Estimate from below how many kinds no input has shown yet (Chao, 1984; Chao1 in its form without bias).

    >>> kinds_to_come(once=3, twice=1).value
    1.5
    """
    value = once * (once - 1) / (2 * (twice + 1))
    variance = (
        value
        + once * (2 * once - 1) ** 2 / (4 * (twice + 1) ** 2)
        + once**2 * twice * (once - 1) ** 2 / (4 * (twice + 1) ** 4)
    )
    return Estimate(value, variance**0.5)


def kinds_of_more(once: float, twice: float, inputs: int, more: int) -> float:
    """Estimate how many new kinds so many ``more`` inputs of the same sort would show.

    Of f₀ kinds to come, each further input meets a given one with the chance f₁/(n·f₀ + f₁) (Chao et al., 2014). Good
    for about as many inputs again as there were.

    >>> round(kinds_of_more(once=30, twice=10, inputs=100, more=1), 2), round(kinds_of_more(30, 10, 100, 100_000), 2)
    (0.3, 39.55)
    """
    to_come = kinds_to_come(once, twice).value
    if not to_come:
        return 0.0
    return to_come * (1 - (1 - once / (inputs * to_come + once)) ** more)


def share_interval(part: int, whole: int) -> tuple[float, float]:
    """Return between which shares the true one lies in 95 of 100 cases (Wilson, 1927).

    >>> [round(end, 4) for end in share_interval(25, 1000)]
    [0.017, 0.0366]
    """
    if not whole:
        return 0.0, 1.0
    z = 1.959963984540054
    share, spread = part / whole, z * z / whole
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * (share * (1 - share) / whole + spread / (4 * whole)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def rarefied(counts: Int[Tensor, "kinds"], weights: Float[Tensor, "kinds"] | None, size: int) -> Estimate:
    """Return the weight of the kinds that ``size`` of the inputs show on average, and how far draws of them differ.

    With n inputs, of which c show a kind, a draw without replacement misses that kind with the chance
    C(n − c, size) / C(n, size), and two kinds together with that of c₁ + c₂, since no input shows both
    (Hurlbert, 1971; Heck, van Belle and Simberloff, 1975). Kinds of one count and weight are worked out once for all,
    so that the pairs are those of different counts, of which n inputs have √(2n) at the most.

    Args:
        counts: how many inputs show each kind.
        weights: what each kind counts; ``None`` if every one counts 1.
        size: how many inputs to draw, at most all of them.
    """
    counts = counts.double().cpu()
    each = torch.ones_like(counts) if weights is None else weights.double().cpu()
    inputs = float(counts.sum())
    classes, kinds = torch.unique(torch.stack([counts, each], dim=1), dim=0, return_counts=True)
    amount, weight, kinds = classes[:, 0], classes[:, 1], kinds.double()
    missed = _missed(amount, inputs, size)
    both = _missed(amount[:, None] + amount, inputs, size) - missed[:, None] * missed
    # Of a kind with itself, and of a class's kinds with each other.
    pairs = kinds[:, None] * kinds - torch.diag(kinds)
    variance = (kinds * weight**2 * missed * (1 - missed)).sum() + (pairs * weight[:, None] * weight * both).sum()
    return Estimate(float((kinds * weight * (1 - missed)).sum()), float(variance.clamp(min=0).sqrt()))


def hit_by_folds(patterns: Int[Tensor, "sets_of_folds"], folds: int, drawn: float) -> Estimate:
    r"""Return how many cells so many of the folds of a suite hit on average, and how far draws of folds differ.

    Folds are dealt by content, so that j of T folds are a random draw of about j/T of the inputs. They miss a cell that
    k folds hit with the chance C(T − k, j) / C(T, j), and two cells together with that of the folds
    that hit either (rarefaction by samples; Colwell, Mao and Chang, 2004). Between whole numbers of folds Γ takes the
    place of factorials.

    Args:
        patterns: how many cells are hit by exactly the folds whose bits their place has; place 0 does not count.
        folds: how many folds there are.
        drawn: how many of these to draw, at least 1.
    """
    places = patterns.cpu().nonzero()[:, 0]
    places = places[places > 0]
    cells, sizes = patterns.cpu()[places].double(), _bits(places)
    missed = _missed(sizes, folds, drawn)
    both = _missed(_bits(places[:, None] | places), folds, drawn) - missed[:, None] * missed
    variance = cells @ both @ cells
    return Estimate(float((cells * (1 - missed)).sum()), float(variance.clamp(min=0).sqrt()))


def cells_of_more(once: float, twice: float, folds: int, more: float) -> float:
    """Estimate how many further cells so many ``more`` folds of the same sort would hit.

    Chao2 (Chao, 1987) tells how many cells no fold has hit yet from those that one and two of them have; each further
    fold hits a given one of them with the chance Q₁/(T·Q₀ + Q₁). Good for about as many folds again as there were.

    >>> round(cells_of_more(once=30, twice=10, folds=10, more=10), 2)
    19.75
    """
    to_come = (folds - 1) / folds * kinds_to_come(once, twice).value
    if not to_come:
        return 0.0
    return float(to_come * (1 - (1 - once / (folds * to_come + once)) ** more))


def _bits(words: Tensor) -> Tensor:
    """Count the bits that are set."""
    found = torch.zeros_like(words)
    for place in range(16):
        found += words >> place & 1
    return found.double()


def error_by_unequal_folds(
    whole: Float[Tensor, ""], values: Float[Tensor, "folds"], sizes: Int[Tensor, "folds"]
) -> float:
    """Return the standard error of a figure, given what it is without each fold of the inputs: the jackknife.

    Without a large fold a figure that grows with the number of inputs falls more, and that is no scatter. So each fold
    gives a pseudo-value by its own size (Busing, Meijer and van der Leeden, 1999); for g folds of one size this is the
    usual √((g − 1)/g · Σ(value − mean)²).

    Args:
        whole: the figure of all inputs.
        values: the figure without each fold.
        sizes: how many inputs each fold has, at least 1.

    >>> left_out, sizes = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5, 5, 5])
    >>> round(error_by_unequal_folds(torch.tensor(4.0), left_out, sizes), 4)
    1.1547
    """
    parts = sizes.sum().double() / sizes.double()
    pseudo = parts * whole.double() - (parts - 1) * values.double()
    middle = len(values) * whole.double() - ((1 - 1 / parts) * values.double()).sum()
    return float(((pseudo - middle).square() / (parts - 1)).mean().sqrt())


def rarity(counts: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return what kinds weigh by how many inputs showed them, rare ones more: 1/√c.

    >>> rarity(torch.tensor([1, 4]))
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    return counts.double().pow(-0.5)


def discounted(
    counts: Int[Tensor, "... classes"], kinds: Int[Tensor, "*rows classes"]
) -> Float[Tensor, "*rows classes"]:
    """Return how likely an input is to show a given kind, by how many inputs have shown it.

    Counts say too much of the kinds they are of, since others were not met. So all known kinds together get what
    Good–Turing gives them, 1 − f₁/N, and of each count the same part is taken away, δ = f₁/(f₁ + 2f₂) (absolute
    discounting; Ney, Essen and Kneser, 1994): p = (1 − f₁/N)·(c − δ)/Σ(c − δ).

    Args:
        counts: how many inputs have shown a kind of each class; 0 for classes without kinds.
        kinds: how many kinds each class has.
    """
    number = counts.double()
    once, twice = (torch.where(counts == times, kinds, 0).sum(-1, keepdim=True).double() for times in (1, 2))
    inputs = (number * kinds).sum(-1, keepdim=True)
    discount = once / (once + 2 * twice).clamp(min=1)
    rest = (kinds * (number - discount)).sum(-1, keepdim=True)
    known = 1 - once / inputs.clamp(min=1)
    return torch.where((rest > 0) & (kinds > 0), known * (number - discount) / rest, 0.0)


def expected_share(
    probability: Float[Tensor, "*rows classes"], weights: Float[Tensor, "*rows classes"], inputs: Float[Tensor, "*more"]
) -> Float[Tensor, "*more"]:
    """Return the share of the classes' weight that so many independent inputs are expected to show."""
    missed = torch.expm1(inputs[..., None] * torch.log1p(-probability))
    return -(weights * missed.nan_to_num(0.0)).sum(-1) / weights.sum(-1)


def _missed(counts: Tensor, inputs: float, size: float) -> Tensor:
    """Return the chance that a draw of ``size`` inputs has none of so many."""
    rest = inputs - counts
    logs = torch.lgamma(rest + 1) - torch.lgamma(rest - size + 1)
    total = torch.tensor([inputs + 1, inputs - size + 1], dtype=torch.float64).lgamma()
    # With a whole size this is 0 below it; with a fraction it falls to 0 within one.
    return torch.where(rest > size - 1, torch.exp(logs - (total[0] - total[1])), 0.0)

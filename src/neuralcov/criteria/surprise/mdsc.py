"""MDSC, Mahalanobis-distance surprise coverage: how far inputs lie from their class, in its own units."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.cost import Cost, Workload
from neuralcov.core.layout import Layout
from neuralcov.core.shapes import Float
from neuralcov.criteria.surprise.class_traces import ClassTraces
from neuralcov.criteria.surprise.surprise import ClassScorer, Scorer, SurpriseCriterion

_ROWS = 4096


@dataclass(frozen=True, eq=False)
class MDSC(SurpriseCriterion):
    """Mahalanobis-distance surprise coverage (Kim et al., ESEC/FSE 2020).

        MDSA(x) = √( (x − μ_c)ᵀ (Σ_c + λI)⁻¹ (x − μ_c) ),    λ = ridge · tr(Σ_c) / d
        MDSC = number of distinct ⌊MDSA(x) / bucket⌋

    with μ_c and Σ_c (divided by n) of the training traces of x's class and d their neurons. A class with fewer
    traces than neurons is solved in the dual, n × n instead of d × d; there most directions of x lie outside the
    class's span and the value scales with ridge^−½. All in float64. In a class whose traces are all equal,
    the surprise is 0 at that trace and inputs elsewhere are excluded.

    Args:
        bucket: width of a bucket.
        ridge: regularisation, as a share of the class's mean variance.
        by: see ``SurpriseCriterion``, as for the rest.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 1}, [nc.MDSC(10, by=None)])
        >>> cov.calibrate(activations={"fc": torch.tensor([[-1.0], [1.0]])})
        >>> round(cov.scores(activations={"fc": torch.tensor([[3.0]])})["MDSC(10, by=None)"].item(), 3)
        2.985
    """

    ridge: float = field(default=1e-2, kw_only=True)

    definition: ClassVar[int] = 2

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        # For each class the mean in two parts, and a factor of the smaller of two matrices.
        width = sum(layout.widths[name] for name in self._traces.names(layout, self.name))
        traces = min(self.traces or workload.training_inputs, workload.training_inputs)
        classes = 1 if self.by is None else workload.classes
        factor = classes * min(traces // classes, width) ** 2
        return replace(super().cost(layout, workload), learnt=8 * (factor + 2 * classes * width))

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number(self, "ridge", at_least=1e-12)

    @property
    @override
    def exclusion_reason(self) -> str:
        return (
            "their classes did not occur in calibration, or with equal traces only, which have no spread, or their "
            "distances are beyond float64"
        )

    @override
    def scorer(self, view: ClassTraces) -> Scorer:
        return MahalanobisDistance(view, self.ridge)


@dataclass(frozen=True, eq=False)
class ClassFactor:
    """What one class needs: mean, λ, and a Cholesky factor, of Σ + λI or, in the dual, of XXᵀ + nλI.

    ``rounded`` is what the mean lacks for being float64, which counts where traces differ in their last digits.
    ``factor`` is ``None`` for a class whose traces are all equal.
    """

    mean: Tensor
    rounded: Tensor
    strength: Tensor
    factor: Tensor | None
    dual: bool


class MahalanobisDistance(ClassScorer):
    """Mahalanobis distances to every class."""

    def __init__(self, view: ClassTraces, ridge: float) -> None:
        super().__init__(view)
        self._classes = {label: _factorised(view.of_class(label), ridge) for label in view.members}

    @override
    def within_class(self, label: int, traces: Float[Tensor, "some width"]) -> Float[Tensor, "some"]:
        known = self._classes[label]
        # The mean is float64, and so is what is taken from it.
        apart = traces - known.mean
        if known.factor is None:
            return torch.where((apart == 0).all(1), 0.0, torch.nan).double()
        apart -= known.rounded
        if not known.dual:
            return _solved(known.factor, apart.T).sqrt()
        own = self.view.of_class(label)
        along = torch.cat([(part - known.mean) @ apart.T for part in torch.split(own, _ROWS)])
        # What lies outside the span of the class is measured by λ alone; rounding must not make it negative.
        squares = apart.square().sum(1)
        return ((squares - _solved(known.factor, along)).clamp(min=0) / known.strength).sqrt()


def _factorised(rows: Tensor, ridge: float) -> ClassFactor:
    count, width = rows.shape
    mean = torch.stack([part.sum(0, dtype=torch.float64) for part in torch.split(rows, _ROWS)]).sum(0) / count
    # The mean of equal numbers may be off in the last digit.
    equal = bool((rows[1:] == rows[:1]).all())
    mean = rows[0].double() if equal else mean
    rounded = torch.stack([(part - mean).sum(0) for part in torch.split(rows, _ROWS)]).sum(0) / count
    trace = torch.stack([(part - mean).square_().sum() for part in torch.split(rows, _ROWS)]).sum() / count
    strength = ridge * trace / width
    if float(trace) == 0:
        return ClassFactor(mean, rounded, strength, None, dual=False)
    if count > width:
        scatter = torch.zeros(width, width, dtype=torch.float64, device=rows.device)
        for part in torch.split(rows, _ROWS):
            centred = part - mean
            scatter.addmm_(centred.T, centred)
        matrix = scatter.div_(count)
        matrix.diagonal().add_(strength)
    else:
        centred = rows - mean
        matrix = centred @ centred.T
        matrix.diagonal().add_(count * strength)
    return ClassFactor(mean, rounded, strength, torch.linalg.cholesky(matrix), dual=count <= width)


def _solved(factor: Tensor, columns: Tensor) -> Tensor:
    """Return vᵀ A⁻¹ v for every column v, with A = L Lᵀ."""
    half: Tensor = torch.linalg.solve_triangular(factor, columns, upper=False)
    return half.square().sum(0)

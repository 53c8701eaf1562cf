"""LSC, likelihood surprise coverage: how unlikely inputs are among the training traces of their class."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.core.errors import CalibrationError
from neuralcov.core.shapes import Float, Int
from neuralcov.criteria.surprise import density
from neuralcov.criteria.surprise.class_traces import ClassTraces
from neuralcov.criteria.surprise.surprise import Scorer, SurpriseCriterion
from neuralcov.statistics.traces import middle

# A neuron that the others of its class foretell to this share of its spread has lost the digits that a surprise needs.
_NEAR_A_PLANE = 1e-7


@dataclass(frozen=True, eq=False)
class LSC(SurpriseCriterion):
    """Likelihood surprise coverage (Kim, Feldt and Yoo, ICSE 2019).

        LSA(x) = −log( 1/n · Σ_t K_h(x − t) )
        LSC = number of distinct ⌊LSA(x) / bucket⌋

    with K_h the Gaussian kernel and t the n training traces of x's class. Right to 1e-9 of itself however far apart the
    traces lie: sums are taken of logarithms, and where the distances of a matrix product might be too coarse, those of
    the traces that carry the sum are float64 differences. An input whose surprise is beyond float64 is excluded.

    Args:
        bucket: width of a bucket.
        bandwidth: the kernel's standard deviation in every direction, or ``"scott"``: the class's covariance
            scaled by Scott's rule, as SciPy's ``gaussian_kde``; needs more traces than neurons in every class.
        by: see ``SurpriseCriterion``, as for the rest.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 1}, [nc.LSC(10, 1.0, by=None)])
        >>> cov.calibrate(activations={"fc": torch.tensor([[-1.0], [1.0]])})
        >>> round(cov.scores(activations={"fc": torch.tensor([[0.0]])})["LSC(10, bandwidth=1, by=None)"].item(), 4)
        1.4189
    """

    bandwidth: float | str = 0.2

    definition: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.bandwidth, str):
            checks.one_of(self, "bandwidth", "scott")
        else:
            # The square of a smaller one is no float64.
            checks.number(self, "bandwidth", at_least=1e-100)

    @property
    @override
    def exclusion_reason(self) -> str:
        return "their classes did not occur in calibration, or their surprise is beyond float64"

    @override
    def scorer(self, view: ClassTraces) -> Scorer:
        if isinstance(self.bandwidth, str):
            return ScottKernelDensity(view, self.bucket, self.name)
        return KernelDensity(view, self.bucket, self.bandwidth)


class DensityScorer(Scorer):
    """Base of kernel densities among the training traces of a class.

    Args:
        view: the training traces.
        bucket: how precise surprises must be is relative to it.
        bandwidth: standard deviation of the kernels.
    """

    def __init__(self, view: ClassTraces, bucket: float, bandwidth: float) -> None:
        super().__init__(view)
        self._bucket, self._bandwidth = bucket, bandwidth
        self._log_counts = {label: math.log(len(members)) for label, members in view.members.items()}
        self._largest = max(map(len, view.members.values()))
        self._at_once = density.points_at_once(self._largest, view.device)

    @abstractmethod
    def sums(self, label: int, traces: Float[Tensor, "some width"], room: Float[Tensor, "_ width"]) -> density.Sums:
        """Sum a class's kernels at traces by products, which overwrite ``room``."""

    @abstractmethod
    def squares(
        self,
        traces: Float[Tensor, "some width"],
        labels: Int[Tensor, "pairs"],
        points: Int[Tensor, "pairs"],
        numbers: Int[Tensor, "pairs"],
    ) -> Float[Tensor, "pairs"]:
        """Return squared distances by float64 differences: in which class, of which trace, from which training one."""

    @abstractmethod
    def log_norm(self, label: int) -> float:
        """Return the logarithm of what a class's mean of kernels is divided by."""

    @override
    def surprises(self, batch: Activations) -> Float[Tensor, "batch"]:
        """Return minus the log densities, by products and, where these leave doubts, by differences.

        Waits for the device for the classes, and to learn which distances must be measured again.
        """
        if batch.size <= self._at_once:
            return self._surprises(batch)
        starts = range(0, batch.size, self._at_once)
        return torch.cat([self._surprises(batch.take(slice(i, i + self._at_once))) for i in starts])

    def _surprises(self, batch: Activations) -> Float[Tensor, "batch"]:
        surprises = torch.full((batch.size,), torch.nan, dtype=torch.float64, device=batch.device)
        room = density.room_for(self._largest, self.view.width, batch.device)
        asked = [
            _Asked(label, rows, traces, self.sums(label, traces, room)) for label, rows, traces in self.by_class(batch)
        ]
        if not asked:
            return surprises
        # What follows is done for all classes together, of which there may be a thousand.
        sizes = [len(part.rows) for part in asked]
        constants = [[self.log_norm(part.label), self._log_counts[part.label]] for part in asked]
        spread = torch.tensor(constants, dtype=torch.float64).repeat_interleave(torch.tensor(sizes), dim=0)
        log_norms, log_counts = spread.T.to(batch.device, non_blocking=True)
        logs, lengths = (torch.cat([getattr(part.found, name) for part in asked]) for name in ("logs", "lengths"))
        bounds = density.bounds(logs, lengths, log_counts, self.view.width, self._bandwidth)
        log_norms = log_norms + log_counts
        found = log_norms - logs
        doubts = bounds.doubtful(found, self._bucket)
        # Where looking is free, nothing more is done where there is no doubt.
        if batch.device.type != "cpu" or bool(doubts.any()):
            floors = bounds.floors.masked_fill(~doubts, math.inf)
            parts = zip(asked, torch.split(floors, sizes), strict=True)
            carrying = [density.carriers(part.found.exponents, floor).flatten() for part, floor in parts]
            pairs = torch.cat(carrying).nonzero()[:, 0]
            if len(pairs):
                found = torch.where(doubts, log_norms - self._measured(asked, pairs.cpu()), found)
        surprises[torch.cat([part.rows for part in asked])] = found
        return surprises

    def _measured(self, asked: list[_Asked], pairs: Int[Tensor, "pairs"]) -> Float[Tensor, "points"]:
        """Return the logarithms of sums of kernels over some pairs, of a trace and a training trace of its class.

        Pairs are counted through class by class, within a class trace by trace.
        """
        members = [self.view.members[part.label] for part in asked]
        sizes = torch.tensor([[len(part.rows), len(some)] for part, some in zip(asked, members, strict=True)])
        sizes = torch.cat([sizes, sizes.prod(1, keepdim=True)], dim=1)
        firsts = sizes.cumsum(0) - sizes
        part = torch.searchsorted(sizes[:, 2].cumsum(0), pairs, right=True)
        (first_point, first_member, first_pair), count = firsts[part].T, sizes[part, 1]
        points = first_point + (pairs - first_pair) // count
        numbers = torch.cat(members)[first_member + (pairs - first_pair) % count]
        labels = torch.tensor([part.label for part in asked])[part]
        traces = torch.cat([part.traces for part in asked])
        exponents = self.squares(traces, labels, points, numbers) * (-0.5 / self._bandwidth**2)
        return density.log_sums(exponents, points.to(traces.device, non_blocking=True), len(traces))


@dataclass(frozen=True, eq=False)
class _Asked:
    """The inputs of one class: their rows in the batch, their traces, and sums of kernels there."""

    label: int
    rows: Tensor
    traces: Tensor
    found: density.Sums


class KernelDensity(DensityScorer):
    """Kernel density with one bandwidth."""

    def __init__(self, view: ClassTraces, bucket: float, bandwidth: float) -> None:
        super().__init__(view, bucket, bandwidth)
        self._known: dict[int, tuple[Tensor, Tensor]] = {}

    def sums(self, label: int, traces: Float[Tensor, "some width"], room: Float[Tensor, "_ width"]) -> density.Sums:
        """Sum a class's kernels about a centre that is kept once known."""
        own = self.view.of_class(label)
        if label not in self._known:
            centre = middle(own).double()
            self._known[label] = centre, density.squared_lengths(own, centre)
        return density.sums(traces, own, *self._known[label], self._bandwidth, room)

    @override
    def squares(
        self,
        traces: Float[Tensor, "some width"],
        labels: Int[Tensor, "pairs"],
        points: Int[Tensor, "pairs"],
        numbers: Int[Tensor, "pairs"],
    ) -> Float[Tensor, "pairs"]:
        return density.differences(traces, self.view.rows, points, numbers)

    @override
    def log_norm(self, label: int) -> float:
        return self.view.width * math.log(math.sqrt(2 * math.pi) * self._bandwidth)


class ScottKernelDensity(DensityScorer):
    """Kernel density with each class's covariance, scaled by Scott's rule."""

    def __init__(self, view: ClassTraces, bucket: float, name: str) -> None:
        super().__init__(view, bucket, 1.0)
        self._known: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._log_norms: dict[int, float] = {}
        for label, members in view.members.items():
            if len(members) <= view.width:
                raise CalibrationError(
                    f"{name}: class {label} has {counted(len(members), 'training trace')} of "
                    f"{counted(view.width, 'neuron')}; "
                    "Scott's rule needs more traces than neurons: choose fewer layers with layers=, or a number as "
                    "bandwidth"
                )
            centre, factor = _shape(view.of_class(label))
            spread = factor.diagonal().abs() / factor.norm(dim=1)
            # The spread is NaN where a neuron does not vary at all.
            if not bool((spread >= _NEAR_A_PLANE).all()):
                raise CalibrationError(
                    f"{name}: the traces of class {label} lie in a plane, or so nearly that float64 cannot tell, so "
                    "Scott's rule has no density: choose other layers with layers=, or a number as bandwidth"
                )
            identity = torch.eye(view.width, dtype=torch.float64, device=factor.device)
            inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
            self._known[label] = centre, factor, inverse
            volume = float(factor.diagonal().abs().log().sum())
            self._log_norms[label] = view.width / 2 * math.log(2 * math.pi) + volume

    def sums(self, label: int, traces: Float[Tensor, "some width"], room: Float[Tensor, "_ width"]) -> density.Sums:
        """Sum a class's kernels where the class is round."""
        centre, factor, _ = self._known[label]
        own, here = (
            torch.linalg.solve_triangular(factor, (rows.double() - centre).T, upper=False).T
            for rows in (self.view.of_class(label), traces)
        )
        nothing = torch.zeros_like(centre)
        return density.sums(here, own, nothing, density.squared_lengths(own, nothing), 1.0, room)

    @override
    def squares(
        self,
        traces: Float[Tensor, "some width"],
        labels: Int[Tensor, "pairs"],
        points: Int[Tensor, "pairs"],
        numbers: Int[Tensor, "pairs"],
    ) -> Float[Tensor, "pairs"]:
        found = torch.empty(len(labels), dtype=torch.float64, device=traces.device)
        for label in torch.unique(labels).tolist():
            pairs = (labels == label).nonzero()[:, 0]
            square = partial(_squared_in_shape, self._known[label][2])
            squares = density.differences(
                traces, self.view.rows, points[pairs], numbers[pairs], square, self.view.width
            )
            found[pairs.to(traces.device, non_blocking=True)] = squares
        return found

    @override
    def log_norm(self, label: int) -> float:
        return self._log_norms[label]


def _shape(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return a point amid traces, and a lower factor of their covariance (divided by n − 1), scaled by Scott's rule.

    By QR of the traces themselves: in a covariance, a trace a million times as far off as others takes twelve digits.
    """
    count, width = rows.shape
    centre = middle(rows).double()
    # Neurons that do not vary come out as zero, not as rounding.
    centred = rows.double() - centre
    centred -= centred.mean(0)
    _, upper = torch.linalg.qr(centred, mode="r")
    return centre, upper.T * (count ** (-1 / (width + 4)) / math.sqrt(count - 1))


def _squared_in_shape(inverse: Tensor, apart: Tensor) -> Tensor:
    return density.squared(density.added(inverse * apart[:, None, :]))

"""LSC, likelihood surprise coverage: how unlikely inputs are among the training traces of their class."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core import checks
from neuralcov.core.errors import CalibrationError
from neuralcov.core.shapes import Float
from neuralcov.core.surprise import ClassFit, Fit, SurpriseCriterion
from neuralcov.core.traceview import TraceView

_ROWS = 4096


@dataclass(frozen=True, eq=False)
class LSC(SurpriseCriterion):
    r"""Likelihood surprise coverage (Kim, Feldt and Yoo, ICSE 2019).

    .. math:: \text{LSA}(x) = -\log\frac{1}{n}\sum_{t} K_h(x - t),\qquad
              \text{LSC} = |\{\lfloor \text{LSA}(x)/\text{bucket}\rfloor\}|

    with K_h the Gaussian kernel and t the n training traces of x's class. Sums are taken of logarithms, in
    float64, so that no input is too far away to have a surprise.

    Args:
        bucket: width of a bucket.
        bandwidth: the kernel's standard deviation in every direction, or ``"scott"``: the class's covariance
            scaled by Scott's rule, as SciPy's ``gaussian_kde``; needs more traces than neurons in every class.
        by: see :class:`~neuralcov.core.surprise.SurpriseCriterion`, as for the rest.

    Example:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 1}, [nc.LSC(10, 1.0, by=None)])
        >>> cov.calibrate(activations={"fc": torch.tensor([[-1.0], [1.0]])})
        >>> round(cov.scores(activations={"fc": torch.tensor([[0.0]])})["LSC(10, bandwidth=1, by=None)"].item(), 4)
        1.4189
    """

    bandwidth: float | str = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.bandwidth, str):
            checks.one_of(self, "bandwidth", "scott")
        else:
            checks.number(self, "bandwidth", above=0)

    def fit(self, view: TraceView) -> Fit:
        """A fixed bandwidth needs nothing; Scott's rule a factor per class."""
        if isinstance(self.bandwidth, str):
            return ScottFit(view, self.name)
        return FixedFit(view, self.bandwidth)


class FixedFit(ClassFit):
    """Kernel density with one bandwidth."""

    def __init__(self, view: TraceView, bandwidth: float) -> None:
        super().__init__(view)
        self._bandwidth = bandwidth
        self._known: dict[int, tuple[Tensor, Tensor]] = {}

    def within_class(self, label: int, traces: Float[Tensor, "some width"]) -> Float[Tensor, "some"]:
        """Minus the log density of traces in one class."""
        own = self.view.of_class(label)
        if label not in self._known:
            centre = own[:_ROWS].mean(0, dtype=torch.float64)
            self._known[label] = centre, _squares(own, centre)
        log_norm = self.view.width * math.log(math.sqrt(2 * math.pi) * self._bandwidth)
        return _log_norm_minus_density(traces, own, *self._known[label], self._bandwidth, log_norm)


class ScottFit(ClassFit):
    """Kernel density with each class's covariance, scaled by Scott's rule."""

    def __init__(self, view: TraceView, name: str) -> None:
        super().__init__(view)
        self._factors: dict[int, tuple[Tensor, Tensor]] = {}
        for label, members in view.members.items():
            if len(members) <= view.width:
                raise CalibrationError(
                    f"{name}: class {label} has {len(members)} training traces of {view.width} neurons; Scott's rule "
                    "needs more traces than neurons: choose fewer layers with layers=, or a number as bandwidth"
                )
            rows = view.of_class(label).double()
            scale = len(rows) ** (-1 / (view.width + 4))
            factor, failed = torch.linalg.cholesky_ex(torch.cov(rows.T).reshape(view.width, view.width) * scale**2)
            if int(failed):
                raise CalibrationError(
                    f"{name}: the traces of class {label} lie in a plane, so Scott's rule has no density: "
                    "choose other layers with layers=, or a number as bandwidth"
                )
            self._factors[label] = (rows.mean(0), factor)

    def within_class(self, label: int, traces: Float[Tensor, "some width"]) -> Float[Tensor, "some"]:
        """Minus the log density of traces in one class, measured where the class is round."""
        mean, factor = self._factors[label]
        own, here = (
            torch.linalg.solve_triangular(factor, (rows.double() - mean).T, upper=False).T
            for rows in (self.view.of_class(label), traces)
        )
        log_norm = self.view.width / 2 * math.log(2 * math.pi) + factor.diagonal().log().sum()
        nothing = torch.zeros_like(mean)
        return _log_norm_minus_density(here, own, nothing, _squares(own, nothing), 1.0, log_norm)


def _log_norm_minus_density(
    traces: Tensor, own: Tensor, centre: Tensor, squares: Tensor, bandwidth: float, log_norm: Tensor | float
) -> Tensor:
    """−log of the mean kernel value, by sums of logarithms over blocks of training traces."""
    # The centre is float64, and so is what is taken from it.
    here = traces - centre
    own_squares = here.square().sum(1)
    total = torch.full((len(traces),), -math.inf, dtype=torch.float64, device=traces.device)
    for part, others in zip(torch.split(own, _ROWS), torch.split(squares, _ROWS), strict=True):
        apart = torch.addmm(own_squares[:, None] + others, here, (part - centre).T, alpha=-2).clamp_(min=0)
        total = torch.logaddexp(total, torch.logsumexp(apart / (-2 * bandwidth**2), dim=1))
    return log_norm + math.log(len(own)) - total


def _squares(rows: Tensor, centre: Tensor) -> Tensor:
    """Squared distances from the centre, float64."""
    return torch.cat([(part - centre).square_().sum(1) for part in torch.split(rows, _ROWS)])

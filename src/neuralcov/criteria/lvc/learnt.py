"""What LVC learns from training data: covariances, how long ordinary inputs are, and volumes to be relative to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.errors import CalibrationError
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.records import Record
from neuralcov.core.shapes import Float, Int
from neuralcov.core.side_by_side import SideBySide
from neuralcov.criteria.lvc.gathered import Sources
from neuralcov.criteria.lvc.room import FAR
from neuralcov.criteria.lvc.sample import InputSample
from neuralcov.criteria.lvc.suites import Suites
from neuralcov.criteria.lvc.volume import TrainingCovariance
from neuralcov.criteria.lvc.whitened import Whitened, leaving_one_out
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.moments import LayerMoments

# Fewer lengths than this do not show which one a training input in a thousand exceeds.
_ENOUGH = 1000


@dataclass(frozen=True, eq=False)
class LVCLearnt(Record, name="lvc-learnt", free=["expected", "seen", "constant"]):
    """What LVC learnt from training data.

    ``limit`` is the length that few training inputs exceed, ``expected`` the share of fresh training inputs to expect
    beyond it. NaN where unknown: a length is that over all layers of an input, which no stage of a pipeline knows.
    ``reference_volumes`` are those of held-out training inputs, or of the training data where none were held out, by
    group of layers.
    """

    names: tuple[str, ...]
    training: tuple[TrainingCovariance, ...]
    limit: Float[Tensor, ""]
    expected: float
    reference_volumes: tuple[Float[Tensor, "_"], ...]
    seen: int
    constant: tuple[str, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(name, str) for name in self.constant):
            raise TypeError(f"constant layers {self.constant!r}")

    @classmethod
    def template(cls, layout: Layout) -> LVCLearnt:
        """Return the form of what is learnt on these layers."""
        real = torch.zeros(0, dtype=torch.float64, device=layout.device)
        training = tuple(
            TrainingCovariance(
                real.new_zeros(len(group), group.width),
                real.new_zeros(len(group), group.width, group.width),
                torch.zeros(len(group), dtype=torch.bool, device=layout.device),
            )
            for group in layout.groups
        )
        volumes = tuple(real.new_zeros(len(group)) for group in layout.groups)
        return cls(tuple(layout), training, real.new_zeros(()), 0.0, volumes, 0, ())

    @classmethod
    def of(cls, name: str, ridge: float, calibration: Calibration, sources: Sources, *, relative: bool) -> LVCLearnt:
        """Learn for the criterion called ``name``."""
        raw, held_out = calibration[sources.moments], calibration.held_out(sources.moments)
        training = tuple(TrainingCovariance.of(moments, ridge) for moments in raw)
        failed = _named(calibration, raw, [t.failed for t in training])
        if failed:
            raise CalibrationError(
                f"{name}: the covariance of the training data cannot be factorised in {', '.join(failed)}: "
                "choose a larger ridge"
            )
        limit, expected = _limit(training, calibration, sources)
        whole = _whitened(training, held_out or raw)
        # Calibrations of schema 1 have no folds; theirs is the reference without correction.
        folds = None if sources.folds is None else calibration.find(sources.folds)
        parts = (whole,) if folds is None else tuple(_whitened(training, part) for part in folds.moments)
        volumes = Suites(parts).volumes
        learnt = cls(
            names=calibration.names,
            training=training,
            limit=limit,
            expected=expected,
            reference_volumes=volumes,
            seen=calibration.seen,
            constant=_named(calibration, raw, [~t.varies for t in training]),
        )
        if relative and held_out is not None:
            learnt._check_held_out(name, whole)
        return learnt

    def joined(self, other: LVCLearnt, layers: SideBySide) -> LVCLearnt:
        """Return what was learnt of the layers of both, short of lengths."""
        return LVCLearnt(
            names=self.names + other.names,
            training=layers.groups(self.training, other.training),
            limit=torch.full_like(self.limit, torch.nan),
            expected=float("nan"),
            reference_volumes=layers.groups(self.reference_volumes, other.reference_volumes),
            seen=min(self.seen, other.seen),
            constant=self.constant + other.constant,
        )

    @cached_property
    def varying(self) -> Int[Tensor, ""]:
        """Return how many layers the mean is over."""
        return torch.cat([t.varies for t in self.training]).sum().clamp(min=1)

    @cached_property
    def reference_volume(self) -> Float[Tensor, ""]:
        """Return the mean of the volumes of reference; 1 where nothing varied in training."""
        mean = self.mean(self.reference_volumes)
        return torch.where(mean > 0, mean, 1.0)

    def mean(self, volumes: Sequence[Float[Tensor, "_"]]) -> Float[Tensor, ""]:
        """Return the mean over the layers that vary in training; the others hold 0."""
        return torch.cat(list(volumes)).sum() / self.varying

    def _check_held_out(self, name: str, whole: tuple[LayerMoments, ...]) -> None:
        far = torch.cat([m.scatter.diagonal(dim1=1, dim2=2).sum(1) / m.width for m in whole]) > FAR**2
        if bool(far.any()):
            raise CalibrationError(
                f"{name}: some held-out inputs lie over {FAR:g} times as far out as training inputs, so that nothing "
                "can be relative to them; hold out inputs like the training data"
            )
        if not bool(self.mean(self.reference_volumes) > 0):
            raise CalibrationError(
                f"{name}: the held-out inputs span no volume, so that nothing can be relative to them; "
                "hold out at least two different inputs with finite outputs"
            )


def _limit(
    training: tuple[TrainingCovariance, ...], calibration: Calibration, sources: Sources
) -> tuple[Float[Tensor, ""], float]:
    """Return the length that a training input in a thousand exceeds, and the share to expect beyond it.

    Taken from inputs that training covariances do not know: held-out ones if there are enough, else training inputs,
    each measured against all others. With fewer than a thousand it is the largest of k lengths, which one more input
    exceeds once in k + 1 times.
    """
    lengths = _lengths(training, calibration.held_out(sources.sample), None)
    if len(lengths) < _ENOUGH:
        lengths = _lengths(training, calibration[sources.sample], calibration[sources.moments])
    count = len(lengths)
    if not count:
        return lengths.new_tensor(torch.inf), float("nan")
    if count < _ENOUGH:
        return lengths.amax(), 1 / (count + 1)
    return lengths.kthvalue(-(-999 * count // 1000)).values, 0.001


def _lengths(
    training: tuple[TrainingCovariance, ...], sample: InputSample | None, among: tuple[LayerMoments, ...] | None
) -> Float[Tensor, "_"]:
    if sample is None:
        return training[0].mean.new_zeros(0)
    corrected = None if among is None else leaving_one_out(among)
    inputs = Whitened.of(training, sample.stacks())
    return inputs.lengths(corrected)[inputs.layers.expand(inputs.size) > 0]


def _whitened(training: tuple[TrainingCovariance, ...], raw: tuple[LayerMoments, ...]) -> tuple[LayerMoments, ...]:
    return tuple(t.moments(moments) for t, moments in zip(training, raw, strict=True))


def _named(calibration: Calibration, moments: tuple[LayerMoments, ...], layers: Sequence[Tensor]) -> tuple[str, ...]:
    """Return the names of the layers for which a flag is set, by group as the moments stand."""
    widest = max(part.width for part in moments)
    flags = in_execution_order([min(width, widest) for width in calibration.widths], layers).tolist()
    return tuple(name for name, flag in zip(calibration.names, flags, strict=True) if flag)

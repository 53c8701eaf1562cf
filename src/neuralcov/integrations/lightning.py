"""A callback for Lightning that listens to validation and test."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn
from typing_extensions import override

from neuralcov.core.arguments import require
from neuralcov.core.errors import InputError
from neuralcov.coverage.collection import AnyCriterion
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.store import Place
from neuralcov.integrations.hearing import Hearing, Labels, labels_of

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    # Both names of the package are in use; take the one that the user has imported.
    _OLD = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    _NAME = "pytorch_lightning" if _OLD else "lightning.pytorch"
    Callback = require(_NAME, "coverage callbacks", extra="lightning").Callback

_STAGES = ("validate", "test")


class CoverageCallback(Callback):
    """Measure what validation and test cover, by listening: no further forward pass.

    Values are logged as ``neuralcov/nc_0.75`` and the like, so that other callbacks can watch them. The states of all
    ranks are merged. Lightning's check of its sanity before training is not heard.

    Args:
        criteria: what to measure.
        module: the name of the module to listen to, such as ``"net"``; by default the LightningModule itself, whose
            steps must then call ``self(...)``.
        stages: ``"validate"`` and ``"test"``, or one of them.
        calibration: training data or a saved calibration, from which to learn before every evaluation.
        labels: from a batch to one class per input; by default the second of a pair, or ``labels`` of a mapping.
        prefix: what every logged key begins with.
        options: further arguments of ``Coverage``, such as ``layers``.
    """

    def __init__(
        self,
        criteria: Sequence[AnyCriterion],
        *,
        module: str = "",
        stages: Sequence[str] = _STAGES,
        calibration: Iterable[Any] | Place | None = None,
        labels: Labels = labels_of,
        prefix: str = "neuralcov/",
        **options: Any,
    ) -> None:
        unknown = [stage for stage in stages if stage not in _STAGES]
        if unknown or isinstance(stages, str):
            raise InputError(f"stages={stages!r}: expected a list of 'validate' and 'test'")
        self._criteria, self._module, self._stages = criteria, module, tuple(stages)
        self._calibration, self._labels, self._prefix, self._options = calibration, labels, prefix, options
        self._hearing: Hearing | None = None
        self.values: dict[str, dict[str, float]] = {}
        """What the last evaluation of each stage gave."""

    @property
    def coverage(self) -> Coverage:
        """The coverage of the last evaluation."""
        if self._hearing is None:
            raise InputError("nothing was evaluated yet: call validate, test or fit of the trainer first")
        return self._hearing.coverage

    def _start(self, stage: str, model: nn.Module) -> None:
        if stage not in self._stages:
            return
        heard = model.get_submodule(self._module)
        if self._hearing is None or self._hearing.coverage.model is not heard:
            coverage = Coverage(heard, self._criteria, **self._options)
            self._hearing = Hearing(coverage, calibration=self._calibration, labels=self._labels, counts=_is_pass)
        self._hearing.start()

    def _batch(self, batch: Any) -> None:
        if self._hearing is not None:
            self._hearing.batch_ended(batch)

    def _stop(self, stage: str, model: Any) -> None:
        if self._hearing is None or not self._hearing.running:
            return
        self.values[stage] = self._hearing.stop()
        # Every rank has the same values already.
        model.log_dict({f"{self._prefix}{key}": value for key, value in self.values[stage].items()}, sync_dist=False)

    @override
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._start("validate", pl_module)

    @override
    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *more: Any) -> None:
        self._batch(batch)

    @override
    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._stop("validate", pl_module)

    @override
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._start("test", pl_module)

    @override
    def on_test_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *more: Any) -> None:
        self._batch(batch)

    @override
    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._stop("test", pl_module)

    @override
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self._hearing is not None:
            self._hearing.drop()


def _is_pass(module: nn.Module) -> bool:
    """Return whether a call of the module runs its own forward: strategies also run whole steps by a call of it."""
    forward = vars(module).get("forward")
    return not getattr(forward, "__qualname__", "").startswith("_ForwardRedirection.")

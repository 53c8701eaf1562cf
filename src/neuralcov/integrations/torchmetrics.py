"""Coverage as a metric of torchmetrics, whose sync merges the states of all processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.arguments import require
from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.integrations.states import reduce_states
from neuralcov.integrations.trackers import metrics_of
from neuralcov.tap.listening import Heard

if TYPE_CHECKING:
    from torchmetrics import Metric
else:
    Metric = require("torchmetrics", "coverage metrics", extra="torchmetrics").Metric


class CoverageMetric(Metric):
    """Measure coverage as torchmetrics measures accuracy: update, forward, compute, reset, sync.

    Other metrics take what a model gave, this one takes what goes in: ``update`` runs the model once more. Use
    ``listen`` around your own passes to do without. Arguments are given by name, so that a ``MetricCollection``
    tells those of this metric from those of others.

    Args:
        coverage: what measures; calibrate it first where criteria need it. Copies of the metric have a copy of it, of
            the same model.
        options: further arguments of ``torchmetrics.Metric``.

    Examples:
        >>> import torch, neuralcov as nc
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> metric = CoverageMetric(nc.Coverage(model, [nc.NC(0.5)]))
        >>> metric.update(inputs=torch.eye(4))
        >>> sorted(metric.compute())
        ['inputs', 'nc_0.5']
    """

    full_state_update = False
    is_differentiable = False

    def __init__(self, coverage: Coverage, **options: Any) -> None:
        if options.get("dist_sync_on_step") or options.get("dist_sync_fn") is not None:
            raise InputError(
                "dist_sync_on_step= and dist_sync_fn= are not for coverage: its states are merged by compute()"
            )
        # Listening changes the coverage behind the metric's back.
        super().__init__(**{"compute_with_cache": False, **options})
        self.coverage = coverage
        self._own: Any = None

    @override
    def update(
        self,
        *,
        inputs: Any = None,
        labels: Any = None,
        activations: Any = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> None:
        """Observe one batch.

        Args:
            inputs: as for ``Coverage.update``.
            labels: see there.
            activations: see there.
            predictions: see there.
            lengths: see there.
        """
        self.coverage.update(inputs, labels, activations=activations, predictions=predictions, lengths=lengths)

    @contextmanager
    def listen(self) -> Iterator[Heard]:
        """Observe the passes of the model that are made within the block, as ``Coverage.listen`` does."""
        with self.coverage.listen() as heard:
            yield heard
        self._update_count += heard.passes

    @override
    def compute(self) -> dict[str, Tensor]:
        return self._tensors(self.coverage)

    @override
    def forward(self, **batch: Any) -> dict[str, Tensor]:
        """Observe a batch and return what it covers alone; the model runs once.

        Args:
            batch: as for ``update``.
        """
        if self._is_synced:
            raise InputError("forward of a metric that is synced: call unsync() first")
        if batch.get("activations") is None:
            given = (batch.pop("inputs", None), batch.pop("labels", None))
            batch = {"activations": self.coverage.run(*given, **batch, predictions=False)[0]}
        self.update(**batch)
        alone = self.coverage.fork()
        alone.reset()
        alone.update(**batch)
        return self._tensors(alone)

    def _tensors(self, coverage: Coverage) -> dict[str, Tensor]:
        found = metrics_of(coverage)
        return {key: torch.tensor(value, dtype=torch.float64, device=self.device) for key, value in found.items()}

    @override
    def reset(self) -> None:
        super().reset()
        self.coverage.reset()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # The model belongs to the user, who would otherwise run one and measure another.
        memo[id(self.coverage)] = self.coverage.fork()
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    @override
    def _sync_dist(self, dist_sync_fn: Callable[..., Any] | None = None, process_group: Any | None = None) -> None:
        self._own = self.coverage.snapshot()
        reduce_states(self.coverage, process_group or self.process_group)

    @override
    def unsync(self, should_unsync: bool = True) -> None:
        super().unsync(should_unsync)
        if should_unsync:
            self.coverage.restore(self._own)
            self._own = None

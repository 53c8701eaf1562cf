"""Coverage as a metric of torchmetrics, whose sync merges the states of all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.arguments import require
from neuralcov.coverage.coverage import Coverage
from neuralcov.integrations.states import packed, take_all
from neuralcov.integrations.trackers import metrics_of

if TYPE_CHECKING:
    from torchmetrics import Metric
    from torchmetrics.utilities.distributed import gather_all_tensors
else:
    Metric = require("torchmetrics", "coverage metrics", extra="torchmetrics").Metric
    gather_all_tensors = require("torchmetrics.utilities.distributed", "coverage metrics").gather_all_tensors


class CoverageMetric(Metric):
    """Measure coverage as torchmetrics measures accuracy: update, compute, reset, sync.

    Args:
        coverage: what measures; calibrate it first where criteria need it.
        options: further arguments of ``torchmetrics.Metric``.

    Example:
        >>> import torch, neuralcov as nc
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> metric = CoverageMetric(nc.Coverage(model, [nc.NC(0.5)]))
        >>> metric.update(torch.eye(4))
        >>> sorted(metric.compute())
        ['inputs', 'nc_0.5']
    """

    full_state_update = False

    def __init__(self, coverage: Coverage, **options: Any) -> None:
        super().__init__(**options)
        self.coverage = coverage
        self._own: Any = None

    @override
    def update(self, *inputs: Any, **more: Any) -> None:
        self.coverage.update(*inputs, **more)

    @override
    def compute(self) -> dict[str, Tensor]:
        found = metrics_of(self.coverage)
        return {key: torch.tensor(value, dtype=torch.float64, device=self.device) for key, value in found.items()}

    @override
    def forward(self, *inputs: Any, **more: Any) -> dict[str, Tensor]:
        """Observe a batch and return what it covers alone."""
        alone = self.coverage.fork()
        alone.reset()
        alone.update(*inputs, **more)
        self.coverage.merge(alone, overlap="repeat")
        self._update_count += 1
        self._computed = None
        found = metrics_of(alone)
        return {key: torch.tensor(value, dtype=torch.float64, device=self.device) for key, value in found.items()}

    @override
    def reset(self) -> None:
        super().reset()
        self.coverage.reset()

    @override
    def _sync_dist(
        self, dist_sync_fn: Callable[..., Any] = gather_all_tensors, process_group: Any | None = None
    ) -> None:
        self._own = self.coverage.snapshot()
        ours = torch.frombuffer(bytearray(packed(self.coverage)) or bytearray(1), dtype=torch.uint8)
        gathered = dist_sync_fn(ours.to(self.device), group=process_group or self.process_group)
        take_all(self.coverage, [b"" if state.numel() == 1 else state.cpu().numpy().tobytes() for state in gathered])

    @override
    def unsync(self, should_unsync: bool = True) -> None:
        super().unsync(should_unsync)
        if should_unsync:
            self.coverage.restore(self._own)
            self._own = None

"""A bounded random sample of training inputs' outputs, for figures that need whole inputs, not sums."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations, Stack
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record, map_tensors
from neuralcov.core.shapes import Bool, Float
from neuralcov.statistics.statistic import BESIDE, Statistic

MOST_INPUTS = 4096
_MOST_BYTES = 1 << 29


@dataclass(frozen=True, eq=False)
class InputSample(Record, name="sample", free=["seen"]):
    """A uniform sample of the inputs seen, by reservoir sampling.

    Which input replaces which is drawn on the host from the number of inputs seen, so that nothing
    waits for the device and the same stream gives the same sample.
    """

    seen: int
    values: tuple[Float[Tensor, "slots _layers _width"], ...]
    counted: tuple[Bool[Tensor, "slots _layers"], ...]

    @classmethod
    def empty(cls, layout: Layout) -> InputSample:
        """Return a sample of no input."""
        size = max(2, min(MOST_INPUTS, _MOST_BYTES // (4 * layout.neurons)))

        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=layout.device)

        return cls(
            seen=0,
            values=tuple(zeros(size, len(g), g.width, dtype=torch.float32) for g in layout.groups),
            counted=tuple(zeros(size, len(g), dtype=torch.bool) for g in layout.groups),
        )

    def observe(self, batch: Activations) -> InputSample:
        """Draw from a batch. Overwrites this one, which calibration alone holds."""
        slots, rows = self._draw(batch.size)
        if slots:
            device = self.values[0].device
            to, source = torch.tensor(slots).to(device), torch.tensor(rows).to(device)
            for stack, values, counted in zip(batch.stacks, self.values, self.counted, strict=True):
                drawn = stack.values[source].to(values.dtype)
                counted[to] = True if stack.valid is None else stack.valid[source]
                if stack.values.dtype == torch.float64:
                    # What float32 cannot hold is left out of the sample.
                    counted[to] &= drawn.isfinite().all(2)
                    drawn = drawn.nan_to_num(0, 0, 0)
                values[to] = drawn
        return InputSample(self.seen + batch.size, self.values, self.counted)

    def stacks(self) -> tuple[Stack, ...]:
        """Return the sampled inputs, as a batch's stacks."""
        filled = slice(0, min(self.seen, self.values[0].shape[0]))
        return tuple(Stack(v[filled], c[filled]) for v, c in zip(self.values, self.counted, strict=True))

    def _draw(self, size: int) -> tuple[list[int], list[int]]:
        capacity = self.values[0].shape[0]
        generator = torch.Generator().manual_seed(self.seen)
        chance = torch.rand(size, generator=generator, dtype=torch.float64).tolist()
        chosen: dict[int, int] = {}
        for row in range(size):
            index = self.seen + row
            slot = index if index < capacity else int(chance[row] * (index + 1))
            if slot < capacity:
                chosen[slot] = row
        return list(chosen.keys()), list(chosen.values())


@dataclass(frozen=True)
class Sample(Statistic[InputSample], name="sample"):
    """Gather a bounded random sample of inputs."""

    held_out = BESIDE

    @override
    def init(self, layout: Layout) -> InputSample:
        return InputSample.empty(layout)

    @override
    def observe(self, gathered: InputSample, batch: Activations) -> InputSample:
        return gathered.observe(batch)

    @override
    def template(self, layout: Layout) -> tuple[InputSample, InputSample]:
        form = map_tensors(lambda tensor: tensor[:0], self.init(layout))
        return form, form

"""LVC, layer volume coverage: the volume a suite spans in every layer, in units of the training data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from neuralcov.core import checks
from neuralcov.core.activations import Activations, Stack
from neuralcov.core.criterion import (
    MERGE_EXACT,
    ORDER_FREE,
    SPLIT_FREE,
    TAKEN,
    UNPLACED,
    Criterion,
    State,
    no_counts,
    resource,
    widths_of,
    with_excluded,
)
from neuralcov.core.errors import CalibrationError
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.moments import Moments, empty_moments, merge_all
from neuralcov.core.records import Record
from neuralcov.core.reference import Reference
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.core.volume import Yardstick, volume, volume_gain

_EXTREME_SHARE = 0.001
# In units of training. A covariance in float64 with such an input in it no longer holds what the others span.
_UNRESOLVED = 1e8


@dataclass(frozen=True, eq=False)
class LVCFit(Record, name="lvc-learnt"):
    """What LVC learnt: a yardstick per group, the length few training inputs exceed, and the unit.

    ``unit`` is the mean volume of held-out training inputs, or of the training data where none were.
    """

    yardsticks: tuple[Yardstick, ...]
    limit: Float[Tensor, ""]
    unit: Float[Tensor, ""]
    seen: int
    constant: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class LVCState(State, name="lvc"):
    """Moments per block of inputs and group of layers, and how many inputs lay beyond the limit."""

    blocks: tuple[tuple[Moments, ...], ...]
    beyond: Int[Tensor, ""]


@dataclass(frozen=True, eq=False)
class LVC(Criterion[LVCState]):
    r"""Layer volume coverage, neuralcov's own.

    .. math:: T = \Sigma_{train} + \text{ridge}\cdot\frac{\operatorname{tr}\Sigma_{train}}{m} I,\qquad
              \text{LVC} = \operatorname*{mean}_l \frac{\log\det(T + \Sigma) - \log\det T}{m \ln 2}

    in bits per neuron, with Σ the covariance of the suite (divided by n). 0 for at most one input. Layers
    that were constant in training are left out of the mean. Not monotone: redundant inputs lower it.
    Extreme inputs raise it, so the share of inputs beyond the whitened length that one training input in
    a thousand exceeds stands beside the value: higher is not more valid.

    Args:
        relative: divide by the value of held-out training inputs (``calibrate(..., held_out=...)``), or of
            the training data where none were held out; 1.0 reads "as spread as training".
        groups: with 2 or more, inputs are dealt to as many blocks by their content, the value is corrected
            by the jackknife for the shortfall of small suites, and its standard error stands beside it, at
            ``groups`` times the memory and cost.
        ridge: regularisation, fixed at calibration.
        refresh: how many inputs ``admit`` takes on one factorisation; 1, the default, judges each on the state it
            meets. A limit on resources, no part of the criterion's identity.

    Example:
        >>> import torch, neuralcov as nc
        >>> x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        >>> cov = nc.Coverage.of_layers({"fc": 3}, [nc.LVC()])
        >>> cov.calibrate(activations={"fc": x})
        >>> cov.update(activations={"fc": x})
        >>> round(cov.values()["LVC"], 3)
        1.0
    """

    relative: bool = field(default=False, kw_only=True)
    groups: int = field(default=1, kw_only=True)
    ridge: float = field(default=1e-4, kw_only=True)
    refresh: int = resource(1)

    def __post_init__(self) -> None:
        checks.flag(self, "relative")
        checks.whole_number(self, "groups", at_least=1)
        checks.number(self, "ridge", at_least=1e-12)
        checks.whole_number(self, "refresh", at_least=1)

    @property
    def learns(self) -> frozenset[str]:
        """Covariances, and a sample to see how long whitened inputs get."""
        return frozenset({"moments", "sample"})

    @property
    def promises(self) -> frozenset[str]:
        """Moments do not care for order, split or merging."""
        return frozenset({ORDER_FREE, SPLIT_FREE, MERGE_EXACT})

    def calibrate(self, reference: Reference) -> Self:
        """Fix the yardsticks, the limit of ordinary lengths and the unit of the relative value."""
        assert reference.moments is not None
        assert reference.sample is not None
        yardsticks = tuple(Yardstick.of(moments, self.ridge) for moments in reference.moments)
        alive = in_execution_order(reference.widths, [y.alive for y in yardsticks]).tolist()
        constant = tuple(name for name, living in zip(reference.names, alive, strict=True) if not living)
        lengths, present = _lengths(yardsticks, reference.sample.stacks())
        ordinary = lengths[present]
        limit = torch.quantile(ordinary, 1 - _EXTREME_SHARE) if len(ordinary) else ordinary.new_tensor(torch.inf)
        unit_of = reference.held_out or reference.moments
        unit = _mean([volume(y, m) for y, m in zip(yardsticks, unit_of, strict=True)], yardsticks)
        if self.relative and reference.held_out is not None and not bool(unit > 0):
            raise CalibrationError(
                f"{self.name}: the held-out inputs span no volume, so that nothing can be relative to them; "
                "hold out at least two different inputs with finite outputs"
            )
        # Nothing varied in training: there is no unit, and nothing that could be measured in it either.
        unit = torch.where(unit > 0, unit, 1.0)
        return replace(self, fitted=LVCFit(yardsticks, limit, unit, reference.seen, constant))

    @property
    def unplaced(self) -> str:
        """Beyond what float64 holds beside the others."""
        return f"they lie over {_UNRESOLVED:g} times as far out as training inputs, so that float64 would lose the rest"

    @property
    def fixed_size(self) -> bool:
        """Moments have one size; dealing inputs to blocks has not been made to be recorded."""
        return self.groups == 1

    def init(self, layout: Layout) -> LVCState:
        """No input in any block."""
        blocks = tuple(empty_moments(layout) for _ in range(self.groups))
        beyond = torch.zeros((), dtype=torch.int64, device=layout.device)
        return LVCState(no_counts(layout), widths_of(layout), blocks, beyond)

    def observe(self, state: LVCState, batch: Activations, *, donate: bool = False) -> LVCState:
        """Take the batch into the blocks its inputs belong to."""
        fit: LVCFit = self.require_fitted()
        lengths, present = self._lengths_of(batch)
        resolved = lengths <= _UNRESOLVED
        beyond = state.beyond + ((lengths > fit.limit) & present & resolved).sum()
        # Where looking is free, masks are made only if they are needed.
        everyone = resolved.device.type == "cpu" and bool(resolved.all())
        stacks = batch.stacks if everyone else tuple(_among(stack, resolved) for stack in batch.stacks)
        blocks = tuple(
            tuple(m.absorb(self._part(batch, s, index), donate=donate) for m, s in zip(block, stacks, strict=True))
            for index, block in enumerate(state.blocks)
        )
        counts = state.counts + batch.tally
        left_out = (~resolved & batch.finite).sum()
        counts[TAKEN] -= left_out
        counts[UNPLACED] += left_out
        return LVCState(counts, state.widths, blocks, beyond)

    def merge(self, a: LVCState, b: LVCState) -> LVCState:
        """Moments of both suites, block by block."""
        blocks = tuple(merge_all(x, y) for x, y in zip(a.blocks, b.blocks, strict=True))
        return LVCState(a.counts + b.counts, a.widths, blocks, a.beyond + b.beyond)

    def value(self, state: LVCState) -> Float[Tensor, ""]:
        """Mean volume of the layers, in bits per neuron or relative to held-out training inputs."""
        fit: LVCFit = self.require_fitted()
        return _mean(self._volumes(state)[0], fit.yardsticks) / self._unit()

    def by_layer(self, state: LVCState) -> Float[Tensor, "layers"]:
        """Volume of each layer; NaN for one that was constant in training."""
        fit: LVCFit = self.require_fitted()
        volumes = [
            torch.where(y.alive, v, torch.nan) for y, v in zip(fit.yardsticks, self._volumes(state)[0], strict=True)
        ]
        return in_execution_order(state.widths, volumes) / self._unit()

    def gain(self, state: LVCState, batch: Activations) -> Float[Tensor, "batch"]:
        """Change of the value by each input alone, from one factorisation per layer and state."""
        fit: LVCFit = self.require_fitted()
        whole = _union(state.blocks)
        change = _mean_gain(fit.yardsticks, whole, batch)
        if self.groups > 1:
            home = self._block_of(batch)
            rest = torch.zeros_like(change)
            for index, block in enumerate(state.blocks):
                apart = _mean_gain(fit.yardsticks, _without(whole, block), batch)
                rest += apart.masked_fill(home == index, 0)
            change = self.groups * change - (self.groups - 1) / self.groups * rest
        resolved = self._lengths_of(batch)[0] <= _UNRESOLVED
        return change.masked_fill(~resolved, 0) / self._unit()

    def admit(
        self, state: LVCState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], LVCState]:
        """In order, inputs that gain; one factorisation serves ``refresh`` admissions."""
        taken = torch.zeros(batch.size, dtype=torch.bool, device=batch.device)
        exclusions = self.exclusions(batch)
        start = 0
        while start < batch.size:
            rest = batch.take(slice(start, batch.size))
            gains = (self.gain(state, rest) > min_gain) & (exclusions[start:] == TAKEN)
            chosen = gains.nonzero()[:, 0][: self.refresh]
            state = self.observe(state, rest.take(chosen)) if len(chosen) else state
            taken[start + chosen] = True
            start = start + int(chosen[-1]) + 1 if len(chosen) == self.refresh else batch.size
        return taken, with_excluded(state, exclusions)

    def beside(self, state: LVCState) -> Mapping[str, float]:
        """Share of extreme inputs and, with blocks, the standard error."""
        fit: LVCFit = self.require_fitted()
        figures = {"beyond": float(state.beyond) / max(1, int(state.counts[TAKEN]))}
        if self.groups > 1:
            left_out = torch.stack([_mean(v, fit.yardsticks) for v in self._volumes(state)[1]])
            spread = (left_out - left_out.mean()).square().sum() * (self.groups - 1) / self.groups
            figures["standard error"] = float(spread.sqrt() / self._unit())
        return figures

    def remarks(self, state: LVCState) -> tuple[str, ...]:
        """Layers left out, and suites or training data too small for the width of the layers."""
        fit: LVCFit = self.require_fitted()
        widest, taken = max(state.widths), int(state.counts[TAKEN])
        said = []
        if fit.constant:
            said.append(f"constant in training and left out: {', '.join(fit.constant)}")
        if fit.seen < 10 * widest:
            said.append(f"calibrated on {fit.seen} inputs, fewer than 10 times the widest layer ({widest} neurons)")
        if 0 < taken < 2 * widest:
            said.append(
                f"{taken} inputs are fewer than twice the widest layer ({widest} neurons): "
                "in such a layer the value falls short by 9 % or more; compare suites of equal size only"
            )
        elif 0 < taken < 10 * widest:
            said.append(
                f"{taken} inputs are fewer than 10 times the widest layer ({widest} neurons): "
                "in such a layer the value falls short by 2 to 9 %; compare suites of equal size"
            )
        return tuple(said)

    def _unit(self) -> Tensor | float:
        fit: LVCFit = self.require_fitted()
        return fit.unit if self.relative else 1.0

    def _volumes(self, state: LVCState) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Volumes per group, corrected where there are blocks; and those with each block left out."""
        fit: LVCFit = self.require_fitted()
        whole = _union(state.blocks)
        volumes = [volume(y, m) for y, m in zip(fit.yardsticks, whole, strict=True)]
        if self.groups == 1:
            return volumes, []
        left_out = [
            [volume(y, m) for y, m in zip(fit.yardsticks, _without(whole, block), strict=True)]
            for block in state.blocks
        ]
        means = [torch.stack(per_block).mean(0) for per_block in zip(*left_out, strict=True)]
        corrected = [self.groups * v - (self.groups - 1) * m for v, m in zip(volumes, means, strict=True)]
        return corrected, left_out

    def _lengths_of(self, batch: Activations) -> tuple[Tensor, Bool[Tensor, "batch"]]:
        """As :func:`_lengths`, once per batch: what is judged is often taken in as well."""
        fit: LVCFit = self.require_fitted()
        return batch.memo(("lengths", id(fit)), lambda: _lengths(fit.yardsticks, batch.stacks))

    def _part(self, batch: Activations, stack: Stack, block: int) -> Stack:
        if self.groups == 1:
            return stack
        return _among(stack, self._block_of(batch) == block)

    def _block_of(self, batch: Activations) -> Int[Tensor, "batch"]:
        return batch.memo(("block", self.groups), lambda: _hash(batch.stacks[0].values[:, 0, :64]) % self.groups)


def _among(stack: Stack, inputs: Bool[Tensor, "batch"]) -> Stack:
    """The stack with only some of its inputs counting."""
    chosen = inputs[:, None].expand(-1, stack.values.shape[1])
    counted = chosen if stack.counted is None else stack.counted & chosen
    return Stack(stack.values.masked_fill(~counted[:, :, None], 0), counted)


def _hash(rows: Tensor) -> Int[Tensor, "batch"]:
    """A non-negative number from each row's content, the same whatever batch the row comes in.

    Only the leading bits of each number count, so that the last digits, which change with the batch
    size a model is run at, seldom move an input to another block.
    """
    # Adding zero makes -0.0 into +0.0, the same number.
    bits = (rows.bfloat16() + 0.0).view(torch.int16).long()
    weights = (torch.arange(1, rows.shape[1] + 1, device=rows.device) * -0x61C8864680B583EB) | 1
    key = (bits * weights).sum(1)
    key = (key ^ (key >> 29)) * -0x40A7B892E31B1A47
    return (key >> 33) & 0x7FFFFFFF


def _lengths(yardsticks: tuple[Yardstick, ...], stacks: tuple[Stack, ...]) -> tuple[Tensor, Bool[Tensor, "batch"]]:
    """Root mean square over layers of whitened length / √m per input, and which inputs have any layer."""
    total = torch.zeros(stacks[0].values.shape[0], dtype=torch.float64, device=stacks[0].values.device)
    layers = torch.zeros_like(total)
    for yardstick, stack in zip(yardsticks, stacks, strict=True):
        counted = yardstick.alive.expand(len(total), -1) if stack.counted is None else stack.counted & yardstick.alive
        squares = yardstick.squared_lengths(stack) / stack.values.shape[2]
        total += squares.masked_fill(~counted, 0).sum(1)
        layers += counted.sum(1)
    return (total / layers.clamp(min=1)).sqrt(), layers > 0


def _mean(per_group: list[Tensor], yardsticks: tuple[Yardstick, ...]) -> Tensor:
    """Mean over layers that were not constant in training; the others hold 0."""
    return torch.stack([layers.sum() for layers in per_group]).sum() / _alive(yardsticks)


def _alive(yardsticks: tuple[Yardstick, ...]) -> Tensor:
    """How many layers the mean is over."""
    return torch.stack([y.alive.sum() for y in yardsticks]).sum().clamp(min=1)


def _mean_gain(yardsticks: tuple[Yardstick, ...], suite: tuple[Moments, ...], batch: Activations) -> Tensor:
    total = torch.zeros(batch.size, dtype=torch.float64, device=batch.device)
    for yardstick, moments, stack in zip(yardsticks, suite, batch.stacks, strict=True):
        change = volume_gain(yardstick, moments, stack.values)
        total += (change if stack.counted is None else change.masked_fill(~stack.counted, 0)).sum(1)
    return total / _alive(yardsticks)


def _union(blocks: tuple[tuple[Moments, ...], ...]) -> tuple[Moments, ...]:
    whole = blocks[0]
    for block in blocks[1:]:
        whole = merge_all(whole, block)
    return whole


def _without(whole: tuple[Moments, ...], block: tuple[Moments, ...]) -> tuple[Moments, ...]:
    return tuple(w.without(b) for w, b in zip(whole, block, strict=True))

"""What a suite shows of single neurons: their extremes, which input reached the highest, the spread of their layer.

Extremes tell dead neurons (never above 0) and constant ones (one value for all inputs), and of two suites together they
are the extremes of both: so merging is exact. The spread is read off a sample, evenly spaced over the suite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.activations import Activations, Stack
from neuralcov.core.layout import Layout
from neuralcov.coverage.collection import CriterionCollection
from neuralcov.coverage.sections.even_sample import EvenSample
from neuralcov.results.sections import LayerNeurons

# Rows of the sample of all layers, and the bytes that it may take; with fewer rows nothing is said of spreads.
_ROWS, _SAMPLE_BYTES, _FEWEST_ROWS = 256, 64 << 20, 32
_EIGENVALUES = 10
_NAMED = 128


@dataclass(frozen=True, eq=False)
class NeuronExtremes:
    """Hold, of all neurons in execution order, the least and the highest output, and the input that gave that.

    Args:
        least: infinite where no input took part.
        most: likewise, below 0.
        peaks: rows in the table of inputs, −1 for none; ``None`` where nobody keeps inputs.
    """

    least: Tensor
    most: Tensor
    peaks: Tensor | None = None

    def joined(self, other: NeuronExtremes) -> NeuronExtremes:
        """Return the extremes of both suites; rows mean nothing any more."""
        least, most = torch.minimum(self.least, other.least), torch.maximum(self.most, other.most)
        return NeuronExtremes(least, most)


class NeuronRecorder:
    """Note extremes and a sample of every layer while a suite is observed.

    Args:
        layout: the layers.
        peaks: whether to note which input gave the highest output.
    """

    def __init__(self, layout: Layout, *, peaks: bool) -> None:
        self._layout, self._wants_peaks, self._rows = layout, peaks, 0
        self._least: list[Tensor] = []
        self._most: list[Tensor] = []
        self._peaks: list[Tensor] = []
        rows = min(_ROWS, _SAMPLE_BYTES // (4 * layout.neurons))
        self._sample = EvenSample(rows) if rows >= _FEWEST_ROWS else None

    def add(self, batch: Activations) -> None:
        """Note a batch."""
        for index, stack in enumerate(batch.stacks):
            low, high, peaks = _extremes(stack)
            # float32 is enough to tell 0 from more, and one value from two.
            if len(self._least) <= index:
                self._least.append(low)
                self._most.append(high)
                self._peaks.append(peaks + self._rows)
                continue
            self._least[index] = torch.minimum(self._least[index], low)
            if self._wants_peaks:
                higher = high > self._most[index]
                self._peaks[index] = torch.where(higher, peaks + self._rows, self._peaks[index])
            self._most[index] = torch.maximum(self._most[index], high)
        if self._sample is not None:
            stacks = batch.stacks
            self._sample.add(batch.size, lambda rows: [_sampled(stack, rows) for stack in stacks])
        self._rows += batch.size

    def read(self) -> tuple[NeuronExtremes | None, dict[str, tuple[float, ...]]]:
        """Return extremes and spreads, after the last batch; nothing where there was no input."""
        return (self._extremes(), self._spectra()) if self._rows else (None, {})

    def _extremes(self) -> NeuronExtremes:
        least, most = self._in_order(self._least), self._in_order(self._most)
        peaks = self._in_order(self._peaks).masked_fill(most.isinf(), -1) if self._wants_peaks else None
        return NeuronExtremes(least, most, peaks)

    def _in_order(self, per_group: Sequence[Tensor]) -> Tensor:
        """Put what stands by group into one row, layers in execution order."""
        rows: dict[int, Tensor] = {}
        for group, tensor in zip(self._layout.groups, per_group, strict=True):
            rows.update(zip(group.positions, tensor.cpu(), strict=True))
        return torch.cat([rows[position] for position in range(len(self._layout))])

    def _spectra(self) -> dict[str, tuple[float, ...]]:
        """Return, by layer, the ten largest eigenvalues of the sample's covariance, as shares of its trace."""
        sampled = None if self._sample is None else self._sample.rows()
        if sampled is None or len(sampled[0]) < 2:
            return {}
        found = {}
        for group, values in zip(self._layout.groups, sampled, strict=True):
            for place, name in enumerate(group.names):
                shares = _spectrum(values[:, place])
                if shares:
                    found[name] = shares
        return {name: found[name] for name in self._layout if name in found}


def _extremes(stack: Stack) -> tuple[Tensor, Tensor, Tensor]:
    """Return the least and highest output of each neuron in a batch, and the row of the highest."""
    low = high = stack.values
    if stack.valid is not None:
        out = ~stack.valid[:, :, None]
        low, high = low.masked_fill(out, torch.inf), high.masked_fill(out, -torch.inf)
    most, rows = high.max(0)
    return low.amin(0).float(), most.float(), rows


def _sampled(stack: Stack, rows: Tensor) -> Tensor:
    """Return some rows, with NaN for those that do not take part."""
    values = stack.values[rows].float()
    return values if stack.valid is None else values.masked_fill(~stack.valid[rows][:, :, None], torch.nan)


def _spectrum(values: Tensor) -> tuple[float, ...]:
    """Return the largest eigenvalues of a covariance as shares of its trace; none for a layer that is constant."""
    values = values[~values.isnan().any(1)]
    if len(values) < 2:
        return ()
    centred = (values - values.mean(0)).double()
    narrow = centred.shape[1] <= centred.shape[0]
    # Both products have the same eigenvalues but for zeros.
    product = centred.T @ centred if narrow else centred @ centred.T
    trace = float(product.diagonal().sum())
    if not trace > 0:
        return ()
    largest = torch.linalg.eigvalsh(product).flip(0)[:_EIGENVALUES].clamp(min=0) / trace
    return tuple(largest.tolist())


def layer_neurons(
    collection: CriterionCollection, extremes: NeuronExtremes | None, spectra: Mapping[str, tuple[float, ...]]
) -> tuple[LayerNeurons, ...]:
    """Return what is known of each layer's neurons: shares of cells from states, the rest as it was noted."""
    layout = collection.layout
    if layout is None:
        return ()
    shares = collection.visited()
    if extremes is None and not shares and not spectra:
        return ()
    widths = list(layout.widths.values())
    least = most = None
    if extremes is not None:
        least, most = torch.split(extremes.least, widths), torch.split(extremes.most, widths)
    rows = []
    for position, (name, width) in enumerate(layout.widths.items()):
        dead = constant = None
        if least is not None and most is not None and bool((most[position] >= least[position]).any()):
            dead, constant = most[position] <= 0, most[position] == least[position]
        visited, numbers, living = {}, {}, {}
        for criterion, by_layer in shares.items():
            some = by_layer[position]
            order = some.argsort(stable=True)[:_NAMED]
            visited[criterion], numbers[criterion] = tuple(some[order].tolist()), tuple(order.tolist())
            if dead is not None and bool((~dead).any()):
                living[criterion] = float(some[~dead].mean())
        rows.append(
            LayerNeurons(
                name,
                width,
                visited,
                numbers,
                _numbers(dead),
                _numbers(constant),
                spectra.get(name, ()),
                None if dead is None else int(dead.sum()),
                None if constant is None else int(constant.sum()),
                living,
            )
        )
    return tuple(rows)


def _numbers(mask: Tensor | None) -> tuple[int, ...] | None:
    return None if mask is None else tuple(mask.nonzero()[:_NAMED, 0].tolist())

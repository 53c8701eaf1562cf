"""Training traces: what whole layers gave for every training input, in memory or streamed from disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations
from neuralcov.core.arguments import match_globs, without_match
from neuralcov.core.cost import Workload
from neuralcov.core.errors import LayerError
from neuralcov.core.layout import Layout
from neuralcov.core.memory import parse_bytes
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.statistics.row_blocks import whole_blocks, with_rows
from neuralcov.statistics.statistic import Statistic

# Enough that the median of a sample lies amid the rows.
_MIDDLE_ROWS = 255

_SAMPLED_AT_ONCE = 1024

LayerGlobs = str | tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class TraceStore(Record, name="traces", free=["names", "sets"], resources=["budget", "device"]):
    """One row per training input: the outputs of the chosen layers side by side.

    Rows are float32, or float64 where some of their layers gave float64.

    Rows lie in blocks of about 1 GiB. Blocks within ``budget`` bytes stay on the device; further ones go to a
    temporary file, are mapped into memory and streamed when needed. Labels and predictions, where the
    training batches carried any, are on the CPU. ``device`` is where work with the traces is done.

    Criteria that trace other layers than others do, in ``sets``, may leave other inputs out for NaN or infinity: there
    is a row for every input that some of them keeps, and ``finite`` tells, for each set, which those are. With one set
    all rows are its own, and ``finite`` is empty.
    """

    names: tuple[str, ...]
    blocks: tuple[Float[Tensor, "_ width"], ...]
    labels: Int[Tensor, "n"] | None
    predictions: Int[Tensor, "n"] | None
    budget: int
    device: str
    sets: tuple[tuple[str, ...], ...] = ()
    finite: tuple[Bool[Tensor, "n"], ...] = ()

    @classmethod
    def empty(
        cls, names: Sequence[str], budget: int, device: torch.device, sets: Sequence[Sequence[str]] = ()
    ) -> TraceStore:
        """Return traces of no input."""
        nothing = torch.empty(0, dtype=torch.int64)
        several = tuple(dict.fromkeys(tuple(some) for some in sets))
        several = several if len(several) > 1 else ()
        return cls(
            tuple(names), (), nothing, nothing, budget, str(device), several, tuple(nothing.bool() for _ in several)
        )

    @classmethod
    def template(cls, names: Sequence[str], layout: Layout) -> TraceStore:
        """Return the form of traces of these layers, with one block of what may be several."""
        empty = cls.empty(names, 0, layout.device)
        rows = torch.empty(0, sum(layout.widths[name] for name in names), dtype=torch.float32, device=layout.device)
        number = torch.empty(0, dtype=torch.int64, device=layout.device)
        return replace(empty, blocks=(rows,), labels=number, predictions=number, finite=(number.bool(),))

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks)

    @property
    def width(self) -> int:
        """Return the neurons of a trace."""
        return self.blocks[0].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Return the type that holds every row: float64 if some are, else float32."""
        return _widest(block.dtype for block in self.blocks)

    def observe(self, batch: Activations) -> TraceStore:
        """Add the traces of a batch; inputs with NaN or infinite outputs are excluded."""
        seen = batch.only(self.names)
        finite = [batch.only(some).finite for some in self.sets]
        kept = torch.stack(finite).any(0) if finite else seen.finite
        rows = trace_of(seen, self.names)[kept]

        def extended(so_far: Tensor | None, new: Tensor | None) -> Tensor | None:
            return None if so_far is None or new is None else torch.cat([so_far, new[kept].cpu()])

        return replace(
            self,
            blocks=with_rows(self.blocks, rows, self.budget),
            labels=extended(self.labels, batch.labels),
            predictions=extended(self.predictions, batch.predictions),
            finite=tuple(torch.cat([old, new[kept].cpu()]) for old, new in zip(self.finite, finite, strict=True)),
        )

    def of_layers(self, names: Sequence[str]) -> TraceStore:
        """Return the traces of the inputs whose outputs in these layers are finite.

        If calibration did not track exactly these layers, also drop inputs that are not finite in the tracked set that
        contains them.
        """
        fitting = [kept for some, kept in zip(self.sets, self.finite, strict=True) if set(names) == set(some)]
        larger = [kept for some, kept in zip(self.sets, self.finite, strict=True) if set(names) <= set(some)]
        kept = next(iter([*fitting, *larger]), torch.stack(self.finite).all(0) if self.finite else None)
        if kept is None or bool(kept.all()):
            return self
        parts = torch.split(kept, [len(block) for block in self.blocks])
        return replace(
            self,
            blocks=tuple(block[part.to(block.device)] for block, part in zip(self.blocks, parts, strict=True)),
            labels=None if self.labels is None else self.labels[kept],
            predictions=None if self.predictions is None else self.predictions[kept],
            sets=(),
            finite=(),
        )

    def sample(self, name: str, widths: Mapping[str, int], most: int) -> TraceStore:
        """Return the traces of one layer and of at most so many inputs, evenly spaced among all.

        Args:
            name: the layer, one of ``names``.
            widths: neurons of the layers in ``names``.
            most: how many inputs; all where there are no more.
        """
        whole = self.of_layers((name,))
        count = min(most, len(whole))
        wanted = torch.arange(count) * len(whole) // max(1, count)
        start = sum(widths[other] for other in self.names[: self.names.index(name)])
        columns = slice(start, start + widths[name])
        # Part by part: rows of all layers may be a thousand times as wide.
        parts = [whole.rows(part)[:, columns].clone() for part in torch.split(wanted, _SAMPLED_AT_ONCE)]
        return replace(
            whole,
            names=(name,),
            blocks=(torch.cat(parts),) if parts else (),
            labels=None if whole.labels is None else whole.labels[wanted],
            predictions=None if whole.predictions is None else whole.predictions[wanted],
            sets=(),
            finite=(),
        )

    def thinned(self, most: int | None) -> TraceStore:
        """Return at most so many of the rows, spread evenly over all; all for ``None``."""
        count = len(self)
        if most is None or count <= most:
            return self
        kept = torch.arange(most) * count // most
        return replace(
            self,
            blocks=(self.rows(kept),),
            labels=None if self.labels is None else self.labels[kept],
            predictions=None if self.predictions is None else self.predictions[kept],
            finite=tuple(finite[kept] for finite in self.finite),
        )

    def finished(self) -> TraceStore:
        """Join the batches that came last to one block."""
        return replace(self, blocks=whole_blocks(self.blocks))

    def to(self, device: torch.device | str) -> TraceStore:
        """Move the traces to another device, as far as the budget goes; the rest stays where it is."""
        left, blocks = self.budget, []
        for block in self.blocks:
            left -= block.nbytes
            blocks.append(block.to(device) if left >= 0 else block.cpu())
        return replace(self, blocks=tuple(blocks), device=str(device))

    def stream(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield every block in turn, on the device, with the rows it holds."""
        start = 0
        for block in self.blocks:
            yield slice(start, start + len(block)), block.to(self.device, non_blocking=True)
            start += len(block)

    def rows(self, wanted: Int[Tensor, "some"]) -> Float[Tensor, "some width"]:
        """Return rows by number, which must rise, on the device."""
        lengths = torch.tensor([len(block) for block in self.blocks])
        starts = lengths.cumsum(0) - lengths
        cuts = torch.searchsorted(wanted, torch.cat([starts, lengths.sum()[None]]))
        local = wanted - starts.repeat_interleave(cuts.diff())
        # Classes lie scattered over all blocks: per block, nothing but the gathering itself is left to the host.
        on_device = local.to(self.device, non_blocking=True)
        found = torch.empty(len(wanted), self.width, dtype=self.dtype, device=self.device)
        for block, (low, high) in zip(self.blocks, pairwise(cuts.tolist()), strict=True):
            if low < high and block.device == found.device and block.dtype == found.dtype:
                torch.index_select(block, 0, on_device[low:high], out=found[low:high])
            elif low < high:
                at = on_device if block.device == found.device else local
                found[low:high] = block[at[low:high]].to(self.device, non_blocking=True)
        return found


@dataclass(frozen=True)
class Traces(Statistic[TraceStore], name="traces"):
    """Gather the outputs of whole layers for every input.

    Args:
        layers: globs joined by ``|``, or names; all by default.
        memory: what the traces may take on the device before they are streamed from disk.
        also: layers of further criteria that share these traces.
    """

    layers: LayerGlobs = None
    memory: str | int = "16GiB"
    also: tuple[LayerGlobs, ...] = ()

    @property
    @override
    def label(self) -> str:
        return self.declared

    def names(self, layout: Layout, owner: str = "traces") -> tuple[str, ...]:
        """Return the chosen layers, or the error, in the name of the criterion ``owner``, that there are none."""
        return _chosen(self.layers, layout, owner)

    @override
    def check(self, layout: Layout, owner: str) -> None:
        self.names(layout, owner)

    @override
    def init(self, layout: Layout) -> TraceStore:
        sets = [_chosen(layers, layout, "traces") for layers in (self.layers, *self.also)]
        names = [name for name in layout if any(name in some for some in sets)]
        return TraceStore.empty(names, parse_bytes(self.memory), layout.device, sets)

    @override
    def observe(self, gathered: TraceStore, batch: Activations) -> TraceStore:
        return gathered.observe(batch)

    @override
    def cost(self, layout: Layout, workload: Workload) -> int:
        # Float32, and a label and a prediction.
        return workload.training_inputs * (4 * sum(layout.widths[name] for name in self.init(layout).names) + 16)

    @override
    def finish(self, gathered: TraceStore) -> TraceStore:
        return gathered.finished()

    @override
    def join(self, other: Traces) -> Traces:
        more = dict.fromkeys((*self.also, other.layers, *other.also))
        also = tuple(layers for layers in more if layers != self.layers)
        return Traces(self.layers, max(parse_bytes(self.memory), parse_bytes(other.memory)), also)

    @override
    def serves(self, other: Statistic[Any]) -> bool:
        return isinstance(other, Traces)

    @override
    def template(self, layout: Layout) -> tuple[TraceStore, TraceStore]:
        form = self.init(layout)
        nothing = replace(form, labels=None, predictions=None, sets=(), finite=())
        return TraceStore.template(form.names, layout), nothing

    @override
    def move(self, gathered: TraceStore, device: torch.device | str) -> TraceStore:
        return gathered.to(device)


def _chosen(layers: LayerGlobs, layout: Layout, owner: str) -> tuple[str, ...]:
    """Return the layers of a layout that globs or names choose."""
    if layers is None:
        return tuple(layout)
    if isinstance(layers, tuple):
        chosen = tuple(name for name in layout if name in layers)
        missing = [name for name in layers if name not in layout]
    else:
        chosen, missing = tuple(match_globs(layout, layers)), without_match(layout, layers)
    if missing or not chosen:
        raise LayerError(
            f"{owner}: layers={layers!r} names {missing[0] if missing else 'no layer'!r} "
            f"of this coverage, which has {', '.join(layout)}"
        )
    return chosen


def trace_of(batch: Activations, names: Sequence[str]) -> Float[Tensor, "batch width"]:
    """Return the outputs of the named layers side by side; steps past an input's end read as zeros.

    Float64 if some of these layers are, else float32.
    """
    dtype = _widest(batch.layers[name].dtype for name in names)
    parts = []
    for name in names:
        outputs = batch.layers[name].to(batch.device, dtype)
        if name in batch.present:
            outputs = outputs.masked_fill(~batch.present[name].to(batch.device)[:, None], 0)
        parts.append(outputs)
    return torch.cat(parts, dim=1)


def middle(rows: Float[Tensor, "rows width"]) -> Float[Tensor, "width"]:
    """Return a point amid rows that a few far ones among them do not move: the median of some, neuron by neuron."""
    some = rows[:: -(-len(rows) // _MIDDLE_ROWS)]
    return some.sort(dim=0).values[len(some) // 2]


def _widest(types: Iterable[torch.dtype]) -> torch.dtype:
    return torch.float64 if torch.float64 in types else torch.float32

"""Projections of training data along random directions: what LCC learns its boxes and kinds from, in one pass.

Where the cuts between boxes lie follows from mean and deviation of the projections, which are known after the last
input. So the projections are kept until then, 64 bytes for each input and layer with eight directions, on disk beyond
``memory``; then the kinds are counted and the projections dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations
from neuralcov.core.arguments import format_value
from neuralcov.core.cost import Workload
from neuralcov.core.layout import Layout
from neuralcov.core.memory import parse_bytes
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.kind_set import FOLD_COUNT, MARK
from neuralcov.criteria.lcc.boxes import box_keys, cells, kind_keys, offsets, present, project, starts
from neuralcov.criteria.lcc.training import LayerKinds, TrainingKinds, TrainingTable
from neuralcov.kernels.hashing import lexical_order
from neuralcov.statistics.row_blocks import Blocks, with_rows
from neuralcov.statistics.statistic import Statistic

# A sum of outputs that are all alike varies by rounding alone.
_ROUNDING = 2.0**-48


@dataclass(frozen=True, eq=False)
class ProjectionRows(Record, name="lcc-projections"):
    """Projections of the finite training inputs so far, what the model decided, and the folds they are dealt to.

    ``blocks`` have a row of layers and directions for each input. ``there`` says which layers an input has, and is
    ``None`` while every one had all. ``classes`` is ``None`` once a batch came without.
    """

    widths: tuple[tuple[str, int], ...]
    device: str
    blocks: Blocks
    folds: Int[Tensor, "n"]
    classes: Int[Tensor, "n"] | None
    there: Bool[Tensor, "n layers"] | None


@dataclass(frozen=True)
class Projections(Statistic[ProjectionRows | TrainingKinds], name="projections"):
    """Gather the kinds that training inputs show, as LCC counts them.

    Args:
        directions: how many random directions a layer is looked at along.
        resolution: steps of a box per standard deviation.
        seed: of directions and offsets.
        memory: what projections may take on the device before they go to disk.
    """

    directions: int = 8
    resolution: float = 0.5
    seed: int = 0
    memory: str | int = "16GiB"

    @property
    @override
    def label(self) -> str:
        return f"{self.declared}({self.directions}, {format_value(self.resolution)}, {self.seed})"

    @override
    def init(self, layout: Layout) -> ProjectionRows:
        none = torch.zeros(0, dtype=torch.int64)
        return ProjectionRows(tuple(layout.widths.items()), str(layout.device), (), none, none, None)

    @override
    def observe(self, gathered: ProjectionRows | TrainingKinds, batch: Activations) -> ProjectionRows:
        rows, finite = cast(ProjectionRows, gathered), batch.finite
        there, earlier = present(batch), rows.there
        if there is not None:
            there = there[finite].cpu()
            there = None if earlier is None and bool(there.all()) else there
        if earlier is not None or there is not None:
            before, after = len(rows.folds), int(finite.sum())
            everywhere = torch.ones(max(before, after), len(rows.widths), dtype=torch.bool)
            parts = (
                everywhere[:before] if earlier is None else earlier,
                everywhere[:after] if there is None else there,
            )
            earlier = torch.cat(parts)
        classes = rows.classes
        if classes is not None:
            classes = (
                None
                if batch.predictions is None
                else torch.cat([classes, batch.predictions[finite.to(batch.predictions.device)].cpu()])
            )
        projected = project(batch, self.directions, self.seed).transpose(0, 1)[finite]
        return replace(
            rows,
            blocks=with_rows(rows.blocks, projected, parse_bytes(self.memory)),
            folds=torch.cat([rows.folds, batch.folds(FOLD_COUNT)[finite].cpu()]),
            classes=classes,
            there=earlier,
        )

    @override
    def finish(self, gathered: ProjectionRows | TrainingKinds) -> TrainingKinds:
        rows = cast(ProjectionRows, gathered)
        names, device = tuple(name for name, _ in rows.widths), torch.device(rows.device)
        offset, begin = offsets(rows.widths, self.directions, self.seed, device), starts(names, self.seed, device)
        mean = torch.zeros(len(names), self.directions, dtype=torch.float64, device=device)
        std = torch.zeros_like(mean)
        found: dict[int, LayerKinds] = {}
        for layer in range(len(names)):
            chosen = torch.ones(len(rows.folds), dtype=torch.bool) if rows.there is None else rows.there[:, layer]
            values = torch.cat([block[:, layer].to(device) for block in rows.blocks])[chosen.to(device)]
            if len(values) < 2:
                continue
            mean[layer] = values.mean(0)
            spread = (values - mean[layer]).square().mean(0).sqrt()
            std[layer] = torch.where(spread <= _ROUNDING * values.abs().amax(0), 0.0, spread)
            if not bool((std[layer] > 0).any()):
                continue
            here = slice(layer, layer + 1)
            steps = cells(values[None], self.resolution, mean[here], std[here], offset[here])
            boxes = box_keys(steps, begin[here])
            classes = None if rows.classes is None else rows.classes[chosen].to(device)
            found[layer] = LayerKinds.of(boxes[0], kind_keys(boxes, classes)[0], rows.folds[chosen].to(device))
        return _joined(names, rows.classes is not None, mean, std, found)

    @override
    def cost(self, layout: Layout, workload: Workload) -> int:
        # Float64, the fold and the class of each input.
        return workload.training_inputs * (8 * len(layout) * self.directions + 16)

    @override
    def join(self, other: Projections) -> Projections | None:
        if not self.serves(other):
            return None
        return replace(self, memory=max(parse_bytes(self.memory), parse_bytes(other.memory)))

    @override
    def serves(self, other: Statistic[Any]) -> bool:
        # What memory it may take is no part of what is gathered.
        return isinstance(other, Projections) and self.label == other.label

    @override
    def template(self, layout: Layout) -> tuple[TrainingKinds, TrainingKinds]:
        return TrainingKinds.template(layout, self.directions)


def _joined(
    names: tuple[str, ...],
    decisions: bool,
    mean: Float[Tensor, "_ _"],
    std: Float[Tensor, "_ _"],
    found: dict[int, LayerKinds],
) -> TrainingKinds:
    """Join what was found of each layer."""
    device = mean.device

    def all_of(parts: list[Tensor], shape: tuple[int, ...]) -> Tensor:
        return torch.cat(parts) if parts else torch.zeros(shape, dtype=torch.int64, device=device)

    kinds = all_of([layer.kinds for layer in found.values()], (0, 2))
    counts = all_of([layer.counts for layer in found.values()], (0,))
    boxes = all_of([layer.boxes for layer in found.values()], (0, 2))
    levels = torch.unique(counts)
    numbers = torch.zeros(len(names), len(levels), dtype=torch.int64, device=device)
    correction = torch.ones(len(names), dtype=torch.float64, device=device)
    off_map = torch.full_like(correction, torch.nan)
    for place, layer in found.items():
        at = torch.searchsorted(levels, layer.counts)
        numbers[place] = torch.bincount(at, minlength=len(levels))
        correction[place], off_map[place] = layer.correction, layer.off_map
    order = lexical_order(kinds)
    table = TrainingTable(kinds[order], counts[order].to(MARK), boxes[lexical_order(boxes)])
    layers = torch.tensor(list(found), dtype=torch.int64, device=device)
    return TrainingKinds(names, decisions, mean, std, layers, levels, numbers, correction, off_map, table)

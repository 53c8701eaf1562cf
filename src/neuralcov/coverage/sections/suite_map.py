"""A map of training data and suite: the two main directions of one layer's outputs over training data.

Calibration keeps an even sample of the training inputs' outputs of the last layer before the output, finds the two
directions in which they vary most, and keeps those with the sample's points. A suite is projected as it is observed.
Inputs much farther out than the others have no say in the directions, which one of them would else decide alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.container import Container
from neuralcov.core.layout import Layout
from neuralcov.coverage.sections.even_sample import EvenSample
from neuralcov.results.sections import SuiteMap

# Points of each, as the page shows them; a layer so wide that its sample would take more bytes has fewer.
_POINTS, _SAMPLE_BYTES = 2000, 256 << 20
# So many times the median distance from the middle is far.
_FAR = 3.0
_NAMES = ("mean", "directions", "points", "explained")


@dataclass(frozen=True, eq=False)
class TrainingMap:
    """Hold two directions and the training inputs seen along them.

    Args:
        layer: whose outputs these are.
        mean: of its neurons.
        directions: ``(neurons, 2)``, orthonormal.
        points: ``(inputs, 2)``.
        explained: the share of the variance along each.
    """

    layer: str
    mean: Tensor
    directions: Tensor
    points: Tensor
    explained: Tensor

    def project(self, outputs: Tensor) -> Tensor:
        """Return where outputs of the layer lie."""
        mean, directions = self.mean.to(outputs.device), self.directions.to(outputs.device)
        return (outputs.float() - mean) @ directions

    def to_json(self, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """Return what a header holds, and add the tensors."""
        for name in _NAMES:
            tensors[f"map.{name}"] = getattr(self, name).contiguous()
        return {"layer": self.layer}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], file: Container, layout: Layout) -> TrainingMap:
        """Read what a calibration file holds; refuse what does not fit the layers."""
        layer = str(content["layer"])
        parts = {name: file.read(f"map.{name}") for name in _NAMES}
        width, points = layout.widths[layer], len(parts["points"])
        expected = {"mean": (width,), "directions": (width, 2), "points": (points, 2), "explained": (2,)}
        for name, tensor in parts.items():
            if tuple(tensor.shape) != expected[name] or not tensor.is_floating_point():
                raise file.error(f"map.{name} holds {tensor.dtype} of shape {tuple(tensor.shape)}")
        return cls(layer, **parts)


class TrainingSample:
    """Keep a sample of training inputs' outputs, and find their main directions."""

    def __init__(self, layout: Layout) -> None:
        names = list(layout)
        self._layer = names[-2] if len(names) > 1 else names[-1]
        self._sample = EvenSample(min(_POINTS, _SAMPLE_BYTES // (4 * layout.widths[self._layer])))

    def add(self, batch: Activations) -> None:
        """Note a batch of training data."""
        outputs, finite = batch.layers[self._layer], batch.finite
        if self._layer in batch.present:
            finite = finite & batch.present[self._layer].to(finite.device)
        self._sample.add(batch.size, lambda rows: [outputs[rows].detach().float(), finite[rows]])

    def finish(self) -> TrainingMap | None:
        """Return the map; ``None`` if too few inputs took part, or all gave the same."""
        kept = self._sample.rows()
        if kept is None:
            return None
        outputs = kept[0][kept[1].to(kept[0].device)].cpu().double()
        if len(outputs) < 3:
            return None
        distances = (outputs - outputs.median(0).values).norm(dim=1)
        ordinary = outputs[distances <= _FAR * distances.median()]
        mean = ordinary.mean(0)
        centred = ordinary - mean
        total = float(centred.square().sum())
        directions = _main_directions(centred)
        if directions is None or not total > 0:
            return None
        explained = (centred @ directions).square().sum(0) / total
        points = (outputs - mean) @ directions
        return TrainingMap(self._layer, mean.float(), directions.float(), points.float(), explained)


def _main_directions(centred: Tensor) -> Tensor | None:
    """Return the two directions of largest variance, each with its largest component above 0."""
    count, width = centred.shape
    if width < 2:
        return None
    if width <= count:
        directions = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -2:].flip(1)
    else:
        # The same directions, by way of the inputs, which are fewer.
        directions = centred.T @ torch.linalg.eigh(centred @ centred.T).eigenvectors[:, -2:].flip(1)
        lengths = directions.norm(dim=0)
        if not bool((lengths > 0).all()):
            return None
        directions = directions / lengths
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    # The sign of an eigenvector means nothing; this makes the picture the same everywhere.
    return torch.where(largest < 0, -directions, directions)


class MapRecorder:
    """Note where a suite lies on a map: two numbers an input."""

    def __init__(self, learnt: TrainingMap) -> None:
        self._learnt = learnt
        self._points: list[Tensor] = []

    def add(self, batch: Activations) -> None:
        """Note a batch."""
        self._points.append(self._learnt.project(batch.layers[self._learnt.layer]))

    def finish(
        self, classes: list[str] | None, wrong: list[bool] | None, named: Mapping[int, str] | None = None
    ) -> SuiteMap:
        """Return the map; of a large suite, inputs evenly spaced over it.

        Args:
            classes: of every input.
            wrong: whether the model is wrong about each.
            named: names of rows to find again on the map.
        """
        points = torch.cat(self._points).cpu()
        finite = points.isfinite().all(1)
        rows = finite.nonzero()[:, 0]
        if len(rows) > _POINTS:
            rows = rows[torch.arange(_POINTS) * len(rows) // _POINTS]
        chosen = rows.tolist()
        first, second = self._learnt.explained.tolist()
        return SuiteMap(
            self._learnt.layer,
            (first, second),
            _pairs(self._learnt.points),
            _pairs(points[rows]),
            () if classes is None else tuple(classes[row] for row in chosen),
            () if wrong is None else tuple(wrong[row] for row in chosen),
            tuple(
                (name, float(points[row, 0]), float(points[row, 1]))
                for row, name in (named or {}).items()
                if finite[row]
            ),
        )


def _pairs(points: Tensor) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), float(y)) for x, y in points.tolist())

"""Draw what LCC sees in two dimensions: ``python tools/draw_cells.py`` writes docs/images/lcc-cells.png."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from torch import Tensor

import neuralcov as nc
from neuralcov.criteria.lcc.boxes import box_keys, cells, offsets, signs, starts

LAYER, WIDTH, DIRECTIONS, RESOLUTION = "fc", 2, 2, 2.0
CPU = torch.device("cpu")
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "lcc-cells.png"


def main() -> None:
    """Draw training data with their boxes, and three suites of equal size on the same map."""
    generator = torch.Generator().manual_seed(4)
    train, test = rings(3000, generator), rings(150, generator)
    copies = test[:5].repeat(30, 1) + 0.08 * torch.randn(150, 2, generator=generator)
    noise = 6 * torch.rand(150, 2, generator=generator) - 3
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.9), layout="constrained")
    draw_map(axes[0], train, None)
    axes[0].scatter(*train[::4].T, s=2, color="#444444", linewidths=0)
    axes[0].set_title("3,000 training inputs and their boxes")
    for panel, name, suite in zip(
        axes[1:], ("150 test inputs", "150 copies of five", "150 of noise"), (test, copies, noise), strict=True
    ):
        coverage = nc.Coverage.of_layers({LAYER: WIDTH}, [nc.LCC(resolution=RESOLUTION, directions=DIRECTIONS)])
        coverage.calibrate(activations={LAYER: train})
        coverage.update(activations={LAYER: suite})
        figures = coverage.details()["LCC(resolution=2, directions=2)"]
        value = coverage.values(warn=False)["LCC(resolution=2, directions=2)"]
        draw_map(panel, train, suite)
        panel.scatter(*suite.T, s=7, color="#c23b22", linewidths=0)
        panel.set_title(
            f"{name}: value {value:.2f},\nrelative {figures['relative']:.2f}, off the map {figures['off_map']:.0%}"
        )
    figure.savefig(PICTURE, dpi=110)


def rings(count: int, generator: torch.Generator) -> Tensor:
    """Return points on two rings, the outer one with few of them."""
    outer = torch.rand(count, generator=generator) < 0.15
    angle = 2 * np.pi * torch.rand(count, generator=generator)
    radius = torch.where(outer, 2.2, 1.0) + 0.12 * torch.randn(count, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def draw_map(panel: Axes, train: Tensor, suite: Tensor | None) -> None:
    """Colour the boxes that training data show by how many do; with a suite, only those that it shows, too."""
    side = torch.linspace(-3.2, 3.2, 500, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1).reshape(-1, 2)
    along = signs((LAYER,), WIDTH, DIRECTIONS, 0, CPU)[0]
    projected = train.double() @ along
    cuts = projected.mean(0)[None], projected.std(0, correction=0)[None], offsets(((LAYER, WIDTH),), DIRECTIONS, 0, CPU)
    begin = starts((LAYER,), 0, CPU)

    def keys(points: Tensor) -> list[int]:
        steps = cells((points.double() @ along)[None], RESOLUTION, *cuts)
        return box_keys(steps, begin)[0, :, 0].tolist()  # type: ignore[no-any-return]

    found, counts = np.unique(keys(train), return_counts=True)
    number = dict(zip(found.tolist(), counts.tolist(), strict=True))
    shown = set(number) if suite is None else set(keys(suite))
    colours = np.array([number.get(key, np.nan) if key in shown else np.nan for key in keys(grid)], dtype=float)
    panel.imshow(
        colours.reshape(500, 500),
        extent=(-3.2, 3.2, -3.2, 3.2),
        origin="lower",
        cmap="Blues",
        norm=LogNorm(0.3, 300),
        alpha=0.75,
    )
    panel.set(xticks=[], yticks=[], xlabel="neuron 1", ylabel="neuron 2")


if __name__ == "__main__":
    main()

"""Draw what criteria see in two dimensions: ``python -m tools.draw_criteria`` writes docs/images/criteria/*.png.

Each picture is made by the criterion itself. A layer of two neurons is calibrated on training data, observes a suite,
and is then asked what one further input would add at every place of the plane: ``gain``. Darker is more. LCC has a
picture of its own besides, ``tools/draw_cells.py``.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from PIL import Image
from torch import Tensor

import neuralcov as nc
from tools.draw_cells import rings

FOLDER = Path(__file__).parent.parent / "docs" / "images" / "criteria"
SIDE, STEPS = 3.4, 170
CRITERIA: dict[str, Callable[[], nc.Criterion[Any]]] = {
    "nc": lambda: nc.NC(0.75),
    "kmnc": lambda: nc.KMNC(20),
    "nbc": nc.NBC,
    "snac": nc.SNAC,
    "tknc": lambda: nc.TKNC(1),
    "tknp": lambda: nc.TKNP(1),
    "ss": nc.SS,
    "cc": lambda: nc.CC(0.8),
    "lsc": lambda: nc.LSC(2, 0.2),
    "dsc": lambda: nc.DSC(0.2),
    "mdsc": lambda: nc.MDSC(1),
    "npc": lambda: nc.NPC(clusters=2, buckets=4, mode="activation"),
    "nlc": nc.NLC,
    "lvc": nc.LVC,
    "lcc": lambda: nc.LCC(resolution=2.0, directions=2),
}


def main() -> None:
    """Draw the criteria named on the command line, or all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or CRITERIA:
        picture = draw(CRITERIA[name])
        picture.quantize(96).save(FOLDER / f"{name}.png", optimize=True)
        print(name, (FOLDER / f"{name}.png").stat().st_size)


def draw(make: Callable[[], nc.Criterion[Any]]) -> Image.Image:
    """Draw what a further input adds to nothing, to some test inputs, and to as many copies of three."""
    generator = torch.Generator().manual_seed(4)
    train, test = rings(1500, generator), rings(60, generator)
    copies = test[:3].repeat(20, 1) + 0.06 * torch.randn(60, 2, generator=generator)
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 4.6), layout="constrained")
    gains, behind = [], isinstance(make(), nc.SS)
    for suite in (test, copies):
        coverage = nc.Coverage.of_layers({layer: tensor.shape[1] for layer, tensor in layers(train, behind)}, [make()])
        (name,) = [criterion.name for criterion in coverage.criteria]
        if coverage.criteria[0].learns:
            coverage.calibrate(**batch(train, behind))
        coverage.update(**batch(suite, behind))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            gains.append((coverage.values()[name], coverage.gain(**batch(grid(), behind))[name]))
    top = max(float(gain.max()) for _, gain in gains)
    for panel, suite, words, (value, gain) in zip(
        axes, (test, copies), ("60 test inputs", "60 copies of three"), gains, strict=True
    ):
        show(panel, gain, top)
        panel.scatter(*train[::3].T, s=2, color="#8a8a8a", linewidths=0)
        panel.scatter(*suite.T, s=11, color="#c23b22", linewidths=0)
        panel.set_title(f"{words}: {value:.3g}", fontsize=10)
    figure.suptitle(name, fontsize=11)
    figure.supxlabel(
        "grey: training data; red: the suite; the darker, the more a further input there would add", fontsize=9
    )
    written = io.BytesIO()
    figure.savefig(written, dpi=100)
    plt.close(figure)
    return Image.open(written).convert("RGB")


def layers(points: Tensor, behind: bool) -> Iterator[tuple[str, Tensor]]:
    """Give the layer of two neurons that is drawn, and for SS one behind it."""
    yield "fc", points
    if behind:
        yield "head", torch.stack([points[:, 0] + 0.6 * points[:, 1] - 0.4, points.norm(dim=1) - 1.6], dim=1)


def batch(points: Tensor, behind: bool) -> dict[str, Any]:
    """Return one batch: its class is the ring it is nearer to, and relevance is what is positive."""
    found = dict(layers(points, behind))
    decided = (points.norm(dim=1) > 1.6).long()
    relevance = {layer: tensor.relu() for layer, tensor in found.items()}
    return {"activations": nc.Activations(found, labels=decided, predictions=decided, relevance=relevance)}


def grid() -> Tensor:
    """Return the points of the plane that are asked."""
    side = torch.linspace(-SIDE, SIDE, STEPS)
    return torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1).reshape(-1, 2)


def show(panel: Axes, gain: Tensor, top: float) -> None:
    """Colour the plane by gain; where nothing is gained, or something lost, it stays white."""
    shown = gain.clamp(min=0).reshape(STEPS, STEPS).numpy()
    panel.imshow(shown, extent=(-SIDE, SIDE, -SIDE, SIDE), origin="lower", cmap="Blues", vmin=0, vmax=1.15 * top or 1)
    panel.set(xticks=[], yticks=[], xlabel="neuron 1", ylabel="neuron 2")


if __name__ == "__main__":
    main()

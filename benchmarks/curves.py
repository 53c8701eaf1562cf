"""Growth curves as one picture: what is seen, and dashed what the definitions imply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot as plt

from benchmarks.growth import theory

matplotlib.use("Agg")
_TITLES = {
    "inputs": "inputs observed",
    "neurons": "neurons in 100 layers",
    "width": "width of one layer",
    "layers": "layers of 64",
    "classes": "classes",
    "batch": "inputs of a batch",
}


def draw(curves: dict[str, Any], path: Path) -> None:
    """Draw a panel for each curve, both axes by powers of ten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [name for name in _TITLES if name in curves]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(3.6 * columns + 1.6, 3.9 * rows), sharey=True, squeeze=False)
    criteria = list(dict.fromkeys(criterion for name in names for criterion in curves[name]))
    colours = {criterion: plt.get_cmap("tab20")(place % 20) for place, criterion in enumerate(criteria)}
    lines: dict[str, Any] = {}
    for axis in grid.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(grid.flat, names, strict=False):
        for criterion, points in curves[name].items():
            known = [(int(size), row["seconds per 1,000"]) for size, row in points.items() if "error" not in row]
            if not known:
                continue
            (line,) = axis.plot(*zip(*known, strict=True), marker="o", markersize=3, color=colours[criterion])
            lines.setdefault(criterion, line)
            # By theory, through the last point seen: the largest size, where a batch's own cost weighs least.
            (last, seconds), power = known[-1], theory(name, criterion)
            implied = [seconds * (size / last) ** power for size, _ in known]
            axis.plot([size for size, _ in known], implied, "--", linewidth=0.7, alpha=0.6, color=colours[criterion])
        axis.set(xscale="log", yscale="log", xlabel=_TITLES[name])
        axis.grid(alpha=0.3)
    for axis in grid[:, 0]:
        axis.set_ylabel("seconds per 1,000 inputs")
    figure.legend(lines.values(), lines.keys(), loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)

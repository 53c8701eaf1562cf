"""Plots of results; matplotlib is imported only when something is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from neuralcov_lab.experiments import pictures
from neuralcov_lab.experiments.canvas import close, show_picture, subplots
from neuralcov_lab.experiments.cells import CellFolder
from neuralcov_lab.experiments.comparisons import ON_TOP, Comparison
from neuralcov_lab.experiments.ranking import Standing, family
from neuralcov_lab.experiments.timing import PLAIN


def draw(folder: CellFolder, found: Sequence[Comparison], standings: Sequence[Standing]) -> list[Path]:
    """All plots that there are results for."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    cells = dict(folder.results())
    place = folder.path / "plots"
    place.mkdir(exist_ok=True)
    drawn: list[Path] = []
    wanted: list[tuple[str, Callable[[], Any]]] = [
        ("ranking", lambda: _ranking(standings)),
        ("noise", lambda: _noise(found)),
        ("faults", lambda: _faults(found)),
        ("order", lambda: _order(cells)),
        ("time", lambda: _time(cells)),
        ("fuzz", lambda: _mutants(cells)),
        ("two-neurons", lambda: pictures.two_neurons(cells)),
        ("one-neuron", lambda: pictures.one_neuron(cells)),
        ("density", lambda: pictures.density(cells)),
        ("perturbations", lambda: pictures.perturbations(cells)),
    ]
    for name, plot in wanted:
        figure = plot()
        if figure is not None:
            drawn.append(place / f"{name}.png")
            # Pictures of 32×32 pixels need no more dots, and so many of them make a large file.
            figure.savefig(drawn[-1], dpi=70 if name == "fuzz" else 110, bbox_inches="tight")
            close(figure)
    return drawn


def _ranking(standings: Sequence[Standing]) -> Any:
    judged = [standing for standing in standings if standing.total.judged]
    if not judged:
        return None
    figure, axes = subplots(8, 0.35 * len(judged) + 1)
    axis = axes[0][0]
    for place, standing in enumerate(reversed(judged)):
        axis.barh(place, standing.total.share, color="tab:green" if family(standing.criterion) == "LVC" else "tab:blue")
        axis.text(standing.total.share + 0.01, place, str(standing.total), va="center", fontsize=8)
    axis.set_yticks(range(len(judged)), [standing.criterion for standing in reversed(judged)])
    axis.set(xlim=(0, 1.12), xlabel="share of ground-truth orders right, all settings")
    return figure


def _noise(found: Sequence[Comparison]) -> Any:
    """Noisy copies against the test suite, criterion by criterion."""
    chosen = [c for c in found if c.experiment == "diversity-image" and c.basis == ON_TOP and len(c.suites) == 3]
    return _differences(chosen)


def _faults(found: Sequence[Comparison]) -> Any:
    """The test suite against attacked inputs, criterion by criterion."""
    chosen = [c for c in found if c.experiment == "faults" and c.basis == ON_TOP]
    return _differences(chosen)


def _differences(chosen: Sequence[Comparison]) -> Any:
    """By how much the suite that should come second exceeds the first: left of the line is right."""
    subjects = list(dict.fromkeys(c.subject for c in chosen))
    if not chosen:
        return None
    labels = list(dict.fromkeys(comparison.label for comparison in chosen))
    longest = max(chosen, key=lambda comparison: len(comparison.runs))
    names = list(dict.fromkeys([*longest.runs, *(name for comparison in chosen for name in comparison.runs)]))
    figure, axes = subplots(5.5 * len(subjects), 7 + 0.2 * len(labels), len(subjects))
    for axis, subject in zip(axes[0], subjects, strict=True):
        for comparison in (c for c in chosen if c.subject == subject):
            means = [comparison.means(name) for name in comparison.runs]
            apart = [_apart(values[1], values[0]) for values in means]
            places, colour = [names.index(name) for name in comparison.runs], f"C{labels.index(comparison.label)}"
            axis.plot(apart, places, "o", markersize=5, alpha=0.7, color=colour, label=comparison.label)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.invert_yaxis()
        axis.axvline(0.0, color="black", linewidth=0.8)
        names_of = {comparison.suites[:2] for comparison in chosen}
        first, second = names_of.pop() if len(names_of) == 1 else ("attacked", chosen[0].suites[1])
        apart_by = f"({second} - {first}) / (|{second}| + |{first}|)"
        axis.set(title=f"{subject}: {first} > {second}", xlim=(-1.05, 1.05), xlabel=f"{apart_by}: right if below 0")
        axis.grid(alpha=0.3)
    # One legend for all, below: beside the points it would hide some.
    shown = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _apart(value: float, other: float) -> float:
    size = abs(value) + abs(other)
    return (value - other) / size if size else 0.0


def _order(cells: dict[str, Any]) -> Any:
    values = {
        name: [v for runs in by_size.values() for v in runs]
        for cell, content in cells.items()
        if cell.startswith("order.")
        for name, by_size in content["result"]["values"].items()
    }
    if not values:
        return None
    figure, axes = subplots(7, 0.25 * len(values) + 1.5)
    axis = axes[0][0]
    for place, (_, numbers) in enumerate(values.items()):
        middle = sum(numbers) / len(numbers)
        axis.plot([n / middle if middle else 1.0 for n in numbers], [place] * len(numbers), "|", markersize=9)
    axis.set_yticks(range(len(values)), list(values), fontsize=7)
    axis.set(xlabel="value / mean over orders and batch sizes")
    axis.grid(alpha=0.3)
    return figure


def _time(cells: dict[str, Any]) -> Any:
    seconds = {
        content["parameters"]["criterion"]: content["result"]["seconds"]
        for cell, content in cells.items()
        if cell.startswith("time.")
    }
    if not seconds:
        return None
    figure, axes = subplots(7, 0.3 * len(seconds) + 1.5)
    axis = axes[0][0]
    names = list(seconds)
    for number, size in enumerate(next(iter(seconds.values()))):
        heights = [min(seconds[name][size]) for name in names]
        places = [place + 0.35 * number for place in range(len(names))]
        axis.barh(places, heights, height=0.33, label=f"batch {size}")
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set(xlabel=f"seconds, best run ({PLAIN}: the forward pass)")
    axis.legend(fontsize=8)
    return figure


def _mutants(cells: dict[str, Any]) -> Any:
    shown = {
        content["parameters"]["criterion"]: content["result"]["pictures"]
        for cell, content in cells.items()
        if cell.startswith("fuzz.") and ".run" not in cell and content["result"]["pictures"]
    }
    if not shown:
        return None
    columns = max(len(images) for images in shown.values())
    figure, axes = subplots(0.9 * columns + 1.2, 0.95 * len(shown), columns, len(shown))
    for row, (name, images) in enumerate(shown.items()):
        for axis in axes[row]:
            axis.axis("off")
        for axis, picture in zip(axes[row], images, strict=False):
            show_picture(axis, picture)
        axes[row][0].text(-0.15, 0.5, name, transform=axes[row][0].transAxes, ha="right", va="center", fontsize=8)
    return figure

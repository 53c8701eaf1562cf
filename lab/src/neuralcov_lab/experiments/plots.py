"""Draw results and the paper's pictures; matplotlib is slow to import and comes in only when something is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from neuralcov_lab.experiments import takeaways
from neuralcov_lab.experiments.comparisons import ON_TOP, Comparison
from neuralcov_lab.experiments.illustrations import ADDITIONS, KINDS
from neuralcov_lab.experiments.jobs import JobFolder, JobResult
from neuralcov_lab.experiments.lcc import plots as lcc
from neuralcov_lab.experiments.ranking import Standing, family
from neuralcov_lab.experiments.selecting.plots import select_plot
from neuralcov_lab.experiments.timing import PLAIN

_TITLES = {"vae": "VAE", "cvae": "conditional VAE", "net_classifier": "classifier"}


def draw(folder: JobFolder, found: Sequence[Comparison], standings: Sequence[Standing]) -> list[Path]:
    """Draw all plots that there are results for."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    jobs = list(folder.results())
    figures = _figures(jobs)
    place = folder.path / "plots"
    place.mkdir(exist_ok=True)
    drawn: list[Path] = []
    wanted: list[tuple[str, Callable[[], Any]]] = [
        ("ranking", lambda: _ranking(standings)),
        ("noise", lambda: _noise(found)),
        ("faults", lambda: _faults(found)),
        ("order", lambda: _order(jobs)),
        ("time", lambda: _time(jobs)),
        ("fuzz", lambda: _mutants(jobs)),
        ("two-neurons", lambda: _two_neurons(figures)),
        ("one-neuron", lambda: _one_neuron(figures)),
        ("density", lambda: _density(figures)),
        ("perturbations", lambda: _perturbations(figures)),
        *((f"orders-{name}", partial(_shares, found, name)) for name in takeaways.EXPECTED),
        ("lcc-orders", lambda: lcc.orders_plot(jobs)),
        ("lcc-next", lambda: lcc.next_plot(jobs)),
        ("lcc-relative", lambda: lcc.relative_plot(jobs)),
        ("lcc-stability", lambda: lcc.stability_plot(jobs)),
        ("select", lambda: select_plot(jobs)),
    ]
    for name, plot in wanted:
        figure = plot()
        if figure is not None:
            drawn.append(place / f"{name}.png")
            # Pictures of 32×32 pixels need no more dots, and so many of them make a large file.
            figure.savefig(drawn[-1], dpi=70 if name == "fuzz" else 110, bbox_inches="tight")
            _close(figure)
    return drawn


def _ranking(standings: Sequence[Standing]) -> Any:
    judged = [standing for standing in standings if standing.total.judged]
    if not judged:
        return None
    figure, axes = _subplots(8, 0.35 * len(judged) + 1)
    axis = axes[0][0]
    for place, standing in enumerate(reversed(judged)):
        axis.barh(place, standing.total.share, color=_colour(standing.criterion))
        axis.text(standing.total.share + 0.01, place, str(standing.total), va="center", fontsize=8)
    axis.set_yticks(range(len(judged)), [standing.criterion for standing in reversed(judged)])
    axis.set(xlim=(0, 1.12), xlabel="share of ground-truth orders right, all settings")
    return figure


def _shares(found: Sequence[Comparison], experiment: str) -> Any:
    """Draw which share of an experiment's orders each setting gets right, most first, by way of measuring."""
    own = [comparison for comparison in found if comparison.experiment == experiment]
    scored = {basis: takeaways.scores_by_setting([c for c in own if c.basis == basis]) for basis in takeaways.OPENINGS}
    bases = {basis: scores for basis, scores in scored.items() if scores}
    if not bases:
        return None
    longest = max(len(scores) for scores in bases.values())
    figure, axes = _subplots(4.2 * len(bases), 0.2 * longest + 1, len(bases))
    for axis, (basis, scores) in zip(axes[0], bases.items(), strict=True):
        names = sorted(scores, key=lambda name: (-scores[name].share, name))
        for place, name in enumerate(names):
            axis.barh(place, scores[name].share, color=_colour(name))
            axis.text(scores[name].share + 0.01, place, str(scores[name]), va="center", fontsize=6)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.invert_yaxis()
        axis.set(title=basis, xlim=(0, 1.15), xlabel="share of orders right")
    return figure


def _colour(criterion: str) -> str:
    """Tell this package's own criteria from the others."""
    return "tab:green" if family(criterion) in ("LVC", "LCC") else "tab:blue"


def _noise(found: Sequence[Comparison]) -> Any:
    """Noisy copies against the test suite, criterion by criterion."""
    chosen = [c for c in found if c.experiment == "diversity-image" and c.basis == ON_TOP and len(c.suites) == 3]
    return _differences(chosen)


def _faults(found: Sequence[Comparison]) -> Any:
    """Draw the test suite against attacked inputs, criterion by criterion."""
    chosen = [c for c in found if c.experiment == "faults" and c.basis == ON_TOP]
    return _differences(chosen)


def _differences(chosen: Sequence[Comparison]) -> Any:
    """Draw by how much the suite that should come second exceeds the first: left of the line is right."""
    subjects = list(dict.fromkeys(c.subject for c in chosen))
    if not chosen:
        return None
    labels = list(dict.fromkeys(comparison.label for comparison in chosen))
    longest = max(chosen, key=lambda comparison: len(comparison.runs))
    names = list(dict.fromkeys([*longest.runs, *(name for comparison in chosen for name in comparison.runs)]))
    figure, axes = _subplots(5.5 * len(subjects), 7 + 0.2 * len(labels), len(subjects))
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


def _order(jobs: Sequence[JobResult]) -> Any:
    values = {
        name: [v for runs in by_size.values() for v in runs]
        for job in jobs
        if job.belongs_to("order")
        for name, by_size in job.result["values"].items()
    }
    if not values:
        return None
    figure, axes = _subplots(7, 0.25 * len(values) + 1.5)
    axis = axes[0][0]
    for place, (_, numbers) in enumerate(values.items()):
        middle = sum(numbers) / len(numbers)
        axis.plot([n / middle if middle else 1.0 for n in numbers], [place] * len(numbers), "|", markersize=9)
    axis.set_yticks(range(len(values)), list(values), fontsize=7)
    axis.set(xlabel="value / mean over orders and batch sizes")
    axis.grid(alpha=0.3)
    return figure


def _time(jobs: Sequence[JobResult]) -> Any:
    seconds = {job.parameters["criterion"]: job.result["seconds"] for job in jobs if job.belongs_to("time")}
    if not seconds:
        return None
    figure, axes = _subplots(7, 0.3 * len(seconds) + 1.5)
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


def _mutants(jobs: Sequence[JobResult]) -> Any:
    shown = {
        job.parameters["criterion"]: job.result["pictures"]
        for job in jobs
        if job.belongs_to("fuzz") and not job.parameters.get("run") and job.result["pictures"]
    }
    if not shown:
        return None
    columns = max(len(images) for images in shown.values())
    figure, axes = _subplots(0.9 * columns + 1.2, 0.95 * len(shown), columns, len(shown))
    for row, (name, images) in enumerate(shown.items()):
        for axis in axes[row]:
            axis.axis("off")
        for axis, picture in zip(axes[row], images, strict=False):
            _show_picture(axis, picture)
        axes[row][0].text(-0.15, 0.5, name, transform=axes[row][0].transAxes, ha="right", va="center", fontsize=8)
    return figure


def _figures(jobs: Sequence[JobResult]) -> dict[str, JobResult]:
    """Return the jobs behind the paper's pictures, each by the part of its result that no other has."""
    parts = ("networks", "neuron", "cloud", "pictures")
    found = [job for job in jobs if job.belongs_to("figures")]
    return {part: job for job in found for part in parts if part in job.result}


def _two_neurons(figures: Mapping[str, JobResult]) -> Any:
    """Inputs in the plane of two neurons, coloured by class."""
    if "networks" not in figures:
        return None
    networks = figures["networks"].result["networks"]
    figure, axes = _subplots(4.2 * len(KINDS), 4, len(KINDS))
    for axis, kind in zip(axes[0], KINDS, strict=True):
        points = np.array(networks[kind]["points"])
        axis.scatter(points[:, 0], points[:, 1], c=networks[kind]["labels"], cmap="tab10", s=4)
        axis.set(title=_TITLES[kind], xlabel="first neuron", ylabel="second neuron")
    return figure


def _one_neuron(figures: Mapping[str, JobResult]) -> Any:
    """Draw how often one neuron gives which output."""
    if "neuron" not in figures:
        return None
    job = figures["neuron"]
    result = job.result
    low, high = result["range"]
    figure, axes = _subplots(7, 4)
    for name, counts in result["counts"].items():
        edges = np.linspace(low, high, len(counts) + 1)
        axes[0][0].stairs(np.array(counts) / max(1, sum(counts)), edges, label=name, linewidth=1.5)
    axes[0][0].set(
        title=f"{job.parameters['network']}, layer {result['layer']}, neuron {result['neuron']}",
        xlabel="output",
        ylabel="share of inputs",
    )
    axes[0][0].legend()
    return figure


def _density(figures: Mapping[str, JobResult]) -> Any:
    """Draw what was added to a cloud of points, and how far each criterion moved."""
    if "cloud" not in figures:
        return None
    result = figures["cloud"].result
    cloud = np.array(result["cloud"])
    figure, axes = _subplots(4.2 * len(ADDITIONS), 8, len(ADDITIONS), 2)
    names = list(result["before"])
    for column, name in enumerate(ADDITIONS):
        points = np.array(result["added"][name])
        axes[0][column].scatter(cloud[:, 0], cloud[:, 1], s=3, color="tab:gray")
        axes[0][column].scatter(points[:, 0], points[:, 1], s=8, color="tab:red")
        axes[0][column].set(title=name, xlim=(-4, 4), ylim=(-4, 4))
        moved = [_relative(result["responses"][name][criterion], result["before"][criterion]) for criterion in names]
        axes[1][column].barh(range(len(names)), moved)
        axes[1][column].set_yticks(range(len(names)), names, fontsize=8)
        axes[1][column].set_xscale("symlog", linthresh=0.01)
        axes[1][column].invert_yaxis()
        axes[1][column].set(xlabel="change of the value / value before\n(the change itself where that was 0)")
    return figure


def _relative(change: float, before: float) -> float:
    return change / abs(before) if before else change


def _perturbations(figures: Mapping[str, JobResult]) -> Any:
    """Images, what was added to them, and what came of it."""
    rows = figures["pictures"].result["pictures"] if "pictures" in figures else {}
    if not rows:
        return None
    columns = len(next(iter(rows.values())))
    figure, axes = _subplots(1.1 * columns + 1.5, 1.15 * len(rows), columns, len(rows))
    for row, (name, images) in enumerate(rows.items()):
        for axis, image in zip(axes[row], images, strict=True):
            _show_picture(axis, image)
        axes[row][0].text(-0.1, 0.5, name, transform=axes[row][0].transAxes, ha="right", va="center", fontsize=8)
    return figure


def _subplots(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    """Return a figure and its axes, ``axes[row][column]``."""
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")


def _close(figure: Any) -> None:
    """Give a figure's memory back."""
    from matplotlib import pyplot

    pyplot.close(figure)


def _show_picture(axis: Any, picture: Any) -> None:
    """Draw ``(channels, height, width)`` bytes."""
    pixels = np.asarray(picture, dtype=np.uint8).transpose(1, 2, 0)
    axis.imshow(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels, cmap="gray", vmin=0, vmax=255)
    axis.axis("off")

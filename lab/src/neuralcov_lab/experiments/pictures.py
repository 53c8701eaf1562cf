"""The paper's pictures, drawn from the cells of ``figures``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neuralcov_lab.experiments.canvas import show_picture, subplots
from neuralcov_lab.experiments.illustrations import ADDITIONS, KINDS

_TITLES = {"vae": "VAE", "cvae": "conditional VAE", "net_classifier": "classifier"}


def two_neurons(cells: Mapping[str, Any]) -> Any:
    """Inputs in the plane of two neurons, coloured by class."""
    if "figures.two-neurons" not in cells:
        return None
    networks = cells["figures.two-neurons"]["result"]["networks"]
    figure, axes = subplots(4.2 * len(KINDS), 4, len(KINDS))
    for axis, kind in zip(axes[0], KINDS, strict=True):
        points = np.array(networks[kind]["points"])
        axis.scatter(points[:, 0], points[:, 1], c=networks[kind]["labels"], cmap="tab10", s=4)
        axis.set(title=_TITLES[kind], xlabel="first neuron", ylabel="second neuron")
    return figure


def one_neuron(cells: Mapping[str, Any]) -> Any:
    """How often one neuron gives which output."""
    if "figures.one-neuron" not in cells:
        return None
    content = cells["figures.one-neuron"]
    result = content["result"]
    low, high = result["range"]
    figure, axes = subplots(7, 4)
    for name, counts in result["counts"].items():
        edges = np.linspace(low, high, len(counts) + 1)
        axes[0][0].stairs(np.array(counts) / max(1, sum(counts)), edges, label=name, linewidth=1.5)
    axes[0][0].set(
        title=f"{content['parameters']['network']}, layer {result['layer']}, neuron {result['neuron']}",
        xlabel="output",
        ylabel="share of inputs",
    )
    axes[0][0].legend()
    return figure


def density(cells: Mapping[str, Any]) -> Any:
    """What was added to a cloud of points, and how far each criterion moved."""
    if "figures.density" not in cells:
        return None
    result = cells["figures.density"]["result"]
    cloud = np.array(result["cloud"])
    figure, axes = subplots(4.2 * len(ADDITIONS), 8, len(ADDITIONS), 2)
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


def perturbations(cells: Mapping[str, Any]) -> Any:
    """Images, what was added to them, and what came of it."""
    rows = cells["figures.perturbations"]["result"]["pictures"] if "figures.perturbations" in cells else {}
    if not rows:
        return None
    columns = len(next(iter(rows.values())))
    figure, axes = subplots(1.1 * columns + 1.5, 1.15 * len(rows), columns, len(rows))
    for row, (name, images) in enumerate(rows.items()):
        for axis, image in zip(axes[row], images, strict=True):
            show_picture(axis, image)
        axes[row][0].text(-0.1, 0.5, name, transform=axes[row][0].transAxes, ha="right", va="center", fontsize=8)
    return figure

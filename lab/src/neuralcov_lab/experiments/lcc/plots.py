"""Draw what LCC's figures foretell, and how they hold across sizes and networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from neuralcov.core.abundance import share_interval
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.lcc.honesty import FRESH, TEST
from neuralcov_lab.experiments.lcc.judged import all_orders, jobs_by_part, score
from neuralcov_lab.experiments.lcc.variants import LCC, VARIANTS


def orders_plot(jobs: Sequence[JobResult]) -> Any:
    """Draw which share of the known orders each criterion gets right, with Wilson's interval."""
    judged = list(all_orders(jobs_by_part(jobs)))
    if not judged:
        return None
    from matplotlib import pyplot

    scores = {name: score(judged, name)[:2] for name in judged[0].signs if name not in VARIANTS}
    names = sorted(scores, key=lambda name: -scores[name][0])
    figure, axis = pyplot.subplots(figsize=(8, 0.35 * len(names) + 1), layout="constrained")
    for place, name in enumerate(names):
        right, total = scores[name]
        low, high = share_interval(right, total)
        share = right / total
        axis.barh(place, share, color="tab:green" if name in (LCC, "LVC") else "tab:blue")
        axis.errorbar(share, place, xerr=[[share - low], [high - share]], color="black", capsize=3, linewidth=0.8)
        axis.text(high + 0.02, place, f"{right} of {total}", va="center", fontsize=8)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set(xlim=(0, 1.15), xlabel="share of known orders right")
    return figure


def next_plot(jobs: Sequence[JobResult]) -> Any:
    """Draw what ``next`` said against what the following inputs showed, a point for each split."""
    results = jobs_by_part(jobs).get("next")
    if not results:
        return None
    figure, axes = _row(results)
    for axis, (subject, result) in zip(axes[0], results.items(), strict=True):
        for place, (first, found) in enumerate(result["splits"].items()):
            after = max((key for key in found if key.isdigit()), key=int)
            label = f"{int(first):,} inputs, then {int(after):,}"
            axis.plot(found["said"], found[after], ".", markersize=4, alpha=0.5, color=f"C{place}", label=label)
            axis.plot(found["layers said"], found["layers seen"], "x", markersize=3, alpha=0.6, color=f"C{place}")
        axis.axline((0, 0), slope=1, color="black", linewidth=0.8)
        axis.set(title=subject, xlabel="next said", ylabel="share of the following inputs that show a new kind")
        axis.legend(fontsize=7)
    return figure


def relative_plot(jobs: Sequence[JobResult]) -> Any:
    """Draw ``relative`` by the number of inputs, a line for each number of training inputs."""
    results = jobs_by_part(jobs).get("relative")
    if not results:
        return None
    figure, axes = _row(results)
    for axis, (subject, result) in zip(axes[0], results.items(), strict=True):
        for place, (number, own) in enumerate(result["calibrations"].items()):
            for suite, style in ((FRESH, "-"), (TEST, "--")):
                if suite in own:
                    sizes = [int(size) for size in own[suite]]
                    means = [mean(found["relative"]) for found in own[suite].values()]
                    label = f"{int(number):,}" + ("" if style == "-" else ", test")
                    axis.plot(sizes, means, style, color=f"C{place}", label=label, linewidth=1.2)
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.set_xscale("log")
        axis.set(title=subject, xlabel="inputs of the suite", ylabel="relative")
        axis.set_ylim(min(0.8, axis.get_ylim()[0]), max(1.4, axis.get_ylim()[1]))
        axis.legend(fontsize=6, title="training inputs", title_fontsize=6, ncols=2)
    return figure


def stability_plot(jobs: Sequence[JobResult]) -> Any:
    """Draw every criterion's values on all models, as multiples of their mean, a colour for each seed."""
    results = jobs_by_part(jobs).get("stability")
    if not results:
        return None
    figure, axes = _row(
        results, height=1.6 + 0.2 * max(len(r["models"][0]["suites"]["test"]) for r in results.values())
    )
    for axis, (subject, result) in zip(axes[0], results.items(), strict=True):
        models = result["models"]
        names = list(models[0]["suites"]["test"])
        for place, name in enumerate(names):
            middle = mean(model["suites"]["test"][name] for model in models) or 1.0
            for seed in sorted({model["seed"] for model in models}):
                values = [m["suites"]["test"][name] / middle for m in models if m["seed"] == seed]
                axis.plot(values, [place] * len(values), "|", markersize=9, color=f"C{seed}")
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.invert_yaxis()
        axis.grid(alpha=0.3)
        axis.set(title=subject, xlabel="value / mean over all models")
    return figure


def _row(results: Mapping[str, Any], height: float = 4.2) -> tuple[Any, Any]:
    from matplotlib import pyplot

    return pyplot.subplots(1, len(results), figsize=(4.6 * len(results), height), squeeze=False, layout="constrained")

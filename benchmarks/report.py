"""Tables and plots of benchmark results, put into docs/performance.md between its markers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot as plt

from benchmarks.subjects import CPU_TARGETS, TARGETS
from neuralcov.core.memory import show_bytes

matplotlib.use("Agg")
DOCS = Path(__file__).parent.parent / "docs"


def write(files: list[Path]) -> None:
    """Fill in every table for which some file has results, and draw the growth curves."""
    page = DOCS / "performance.md"
    text = page.read_text()
    for path in files:
        results = json.loads(path.read_text())
        where = _place(results)
        for part, make in _MAKERS.items():
            if part in results:
                text = _filled(text, f"{where} {part}", make(results))
        if "growth" in results:
            _draw(results["growth"], DOCS / "images" / f"growth-{where}.png")
    page.write_text(text)


def _filled(text: str, name: str, content: str) -> str:
    pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    return pattern.sub(lambda match: match[1] + content + "\n" + match[2], text)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _assess(results: dict[str, Any]) -> str:
    parts, sizes = results["assess"], [size for size in results["assess"] if size[0].isdigit()]
    naive, on_cpu = results.get("naive", {}).get("forms", {}), _place(results) == "cpu"
    header = ["criterion"]
    for size in sizes:
        header += [f"batch {_shown(size)}, s", "× forward", "target"]
    header += ([] if on_cpu else ["peak memory"]) + (["naive form, s", "times faster"] if naive else [])
    rows = []
    first = parts[sizes[0]]
    for name, figures in first["criteria"].items():
        row = [name]
        for index, size in enumerate(sizes):
            aim = CPU_TARGETS.get(name) if on_cpu else TARGETS.get(name, (None, None))[min(index, 1)]
            row += _against(aim, parts[size]["criteria"].get(name))
        if not on_cpu:
            row.append(show_bytes(figures["peak bytes"]))
        if naive:
            row += _factor(naive.get(name), figures["seconds"] * 1e4 / first["inputs"])
        rows.append(row)
    plain = ", ".join(f"{parts[s]['forward seconds']:.3g} s at batch {int(s):,}" for s in sizes if s.isdigit())
    machine = results["machine"]
    note = (
        f"{first['inputs']:,} inputs, ResNet50 for 32×32; plain forward pass {plain}. "
        f"{machine['device']}, PyTorch {machine['torch']}."
    )
    return note + "\n\n" + _table(header, rows)


def _against(aim: float | None, found: dict[str, Any] | None) -> list[str]:
    """Seconds, ratio, and whether the target is met."""
    if found is None:
        return ["–", "–", ""]
    met = "" if aim is None else f"≤ {aim:g} {'✓' if found['ratio'] <= aim else '✗'}"
    return [f"{found['seconds']:.3g}", f"{found['ratio']:.2f}", met]


def _factor(naive: dict[str, Any] | None, own: float) -> list[str]:
    """Seconds of the naive form for 10,000 inputs, and how many times as long as ours that is."""
    if naive is None:
        return ["–", "–"]
    return [_three_figures(naive["seconds per 10,000"]), _three_figures(naive["seconds per 10,000"] / own)]


def _three_figures(value: float) -> str:
    """Without the exponent that three figures of a large number would come with."""
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def _place(results: dict[str, Any]) -> str:
    return "cpu" if "CPU" in results["machine"]["device"] else "gpu"


def _shown(size: str) -> str:
    number, _, recorded = size.partition(" ")
    return f"{int(number):,}" + (", `cuda_graph`" if recorded else "")


def _calibration(results: dict[str, Any]) -> str:
    part = results["calibration"]
    rows = [[kind, f"{row['seconds']:.3g}", f"{row['ratio']:.2f}"] for kind, row in part["kinds"].items()]
    note = f"{part['inputs']:,} training inputs; plain forward pass {part['forward seconds']:.3g} s."
    return note + "\n\n" + _table(["learnt", "s", "× forward"], rows)


def _gain(results: dict[str, Any]) -> str:
    part = results["gain"]
    sizes = sorted({int(size) for row in part["criteria"].values() for size in row})
    rows = [
        [name, *(f"{row[str(s)]['candidates per second']:,.0f}" if str(s) in row else "–" for s in sizes)]
        for name, row in part["criteria"].items()
    ]
    note = f"Candidates judged per second, activations given, after {part['observed before']:,} observed inputs."
    return note + "\n\n" + _table(["criterion", *(f"{s:,} at once" for s in sizes)], rows)


def _admit(results: dict[str, Any]) -> str:
    part = results["admit"]
    rows = [
        [name, f"{row['offered']:,}", f"{row['admitted']:,}", f"{row['offered per second']:,.0f}"]
        for name, row in part["criteria"].items()
    ]
    note = f"Each input judged on the state it meets, after {part['observed before']:,} observed inputs."
    return note + "\n\n" + _table(["criterion", "offered", "admitted", "offered per second"], rows)


def _states(results: dict[str, Any]) -> str:
    rows = [
        [name, *(f"{row[f'{what} seconds']:.3g}" for what in ("save", "load", "merge")), show_bytes(row["file bytes"])]
        for name, row in results["states"]["criteria"].items()
    ]
    note = f"After {results['states']['observed']:,} inputs."
    return note + "\n\n" + _table(["criterion", "save, s", "load, s", "merge, s", "file"], rows)


def _agreement(results: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['device']:.10g}", f"{row['cpu']:.10g}", f"{row['relative']:.1e}"]
        for name, row in results["agreement"]["criteria"].items()
    ]
    return _table(["criterion", "GPU", "CPU", "relative difference"], rows)


def _formats(results: dict[str, Any]) -> str:
    part = results["formats"]
    names = list(next(iter(part["formats"].values()))["criteria"])
    rows = [
        [kind, f"{row['forward seconds']:.3g}", *(_ratios(row["criteria"][name]) for name in names)]
        for kind, row in part["formats"].items()
    ]
    note = (
        f"{part['inputs']:,} inputs at batch {part['batch size']:,}; multiples of each model's own forward pass, with "
        "`cuda_graph` behind the stroke where that was timed."
    )
    return note + "\n\n" + _table(["model", "forward, s", *names], rows)


def _ratios(row: dict[str, float]) -> str:
    recorded = f" / {row['recorded ratio']:.2f}" if "recorded ratio" in row else ""
    return f"{row['ratio']:.2f}{recorded}"


def _scale(results: dict[str, Any], part: str = "scale") -> str:
    found = results[part]
    rows = [
        [
            name,
            f"{row['seconds to fit']:.1f}",
            f"{row['seconds to score']:.1f}",
            "–" if row["peak bytes"] is None else show_bytes(row["peak bytes"]),
        ]
        for name, row in found["criteria"].items()
    ]
    note = (
        f"{found['traces']:,} traces × {found['neurons']:,} neurons in {found['classes']:,} classes "
        f"({show_bytes(found['bytes of traces'])}, of which {show_bytes(found['bytes on the device'])} on the device), "
        f"{found['tests']:,} test inputs. {results['machine']['device']}."
    )
    return note + "\n\n" + _table(["criterion", "fit, s", "score all, s", "peak memory"], rows)


_MAKERS = {
    "assess": _assess,
    "calibration": _calibration,
    "gain": _gain,
    "admit": _admit,
    "states": _states,
    "formats": _formats,
    "agreement": _agreement,
    "scale": _scale,
    "scale-disk": lambda results: _scale(results, "scale-disk"),
}


def _draw(curves: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [name for name in ("inputs", "neurons", "width", "classes") if name in curves]
    figure, axes = plt.subplots(1, len(names), figsize=(3.6 * len(names) + 1.6, 4.2), sharey=True)
    criteria = list(dict.fromkeys(criterion for name in names for criterion in curves[name]))
    colours = {criterion: plt.get_cmap("tab20")(place) for place, criterion in enumerate(criteria)}
    lines: dict[str, Any] = {}
    titles = {
        "inputs": "inputs observed",
        "neurons": "neurons in 100 layers",
        "width": "width of one layer",
        "classes": "classes",
    }
    for axis, name in zip(axes, names, strict=True):
        for criterion, points in curves[name].items():
            known = [(int(size), row["seconds per 1,000"]) for size, row in points.items() if "error" not in row]
            if known:
                (line,) = axis.plot(*zip(*known, strict=True), marker="o", markersize=3, color=colours[criterion])
                lines.setdefault(criterion, line)
        axis.set(xscale="log", yscale="log", xlabel=titles[name])
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds per 1,000 inputs")
    figure.legend(lines.values(), lines.keys(), loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)

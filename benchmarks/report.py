"""Tables and plots of benchmark results, put into docs/performance.md between its markers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from benchmarks import host, recorded_tables
from benchmarks.curves import draw
from benchmarks.growth import theory
from benchmarks.subjects import CPU_TARGETS, TARGETS
from benchmarks.tables import against, machine, ratio, table, three_figures
from neuralcov.core.memory import show_bytes

DOCS = Path(__file__).parent.parent / "docs"
# Batches of so many inputs stand beside the larger ones of the table of all criteria.
_SMALLER = 100


def write(files: list[Path]) -> None:
    """Fill in every table for which some file has results, and draw the growth curves."""
    page = DOCS / "performance.md"
    text = page.read_text()
    runs = [json.loads(path.read_text()) for path in files]
    for where in ("cpu", "gpu"):
        for part, content in tables(where, runs).items():
            text = filled(text, f"{where} {part}", content)
        growth = joined([results for results in runs if _place(results) == where]).get("growth")
        if growth:
            draw(growth, DOCS / "images" / f"growth-{where}.png")
    page.write_text(text)


def tables(where: str, runs: list[dict[str, Any]]) -> dict[str, str]:
    """Return the table of every part that was measured on one kind of machine, an earlier version beside it."""
    now, before = (
        joined([run for run in runs if _place(run) == where and (run.get("label") == "before") == earlier])
        for earlier in (False, True)
    )
    return {part: make({**now, "before": before}) for part, make in _MAKERS.items() if part in now}


def joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the parts of several runs on one kind of machine together; a GPU's batches of 100 are a part of their own."""
    found: dict[str, Any] = {}
    for results in runs:
        for part, rows in results.items():
            if part == "assess" and rows["size"] == _SMALLER and _place(results) == "gpu":
                found[f"assess {_SMALLER}"] = rows
            elif part == "growth":
                found[part] = {**found.get(part, {}), **rows}
            else:
                found[part] = rows
    return found


def filled(text: str, name: str, content: str) -> str:
    """Put a table between its markers on a page."""
    pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    found, count = pattern.subn(lambda match: match[1] + content + "\n" + match[2], text)
    if count != 1:
        raise ValueError(f"the page has {count} places for {name!r}: write the markers <!-- begin {name} --> once")
    return found


def _assess(results: dict[str, Any]) -> str:
    part, smaller = results["assess"], results.get(f"assess {_SMALLER}")
    forms, on_cpu = results.get("naive", {}).get("forms", {}), _place(results) == "cpu"
    aims = CPU_TARGETS if on_cpu else TARGETS["large"]
    header = ["criterion", "s", "× forward", "target", *([] if on_cpu else ["peak memory"])]
    header += [f"batches of {_SMALLER}, × forward"] if smaller else []
    header += ["naive form, s", "times faster"] if forms else []
    rows = []
    for name, figures in part["criteria"].items():
        row = [name, *against(aims.get(name), figures), *([] if on_cpu else [show_bytes(figures["peak bytes"])])]
        if smaller:
            row.append(ratio(smaller["criteria"].get(name, {}).get("ratio")))
        if forms:
            plain = forms.get(name, {}).get("seconds per 10,000")
            row += ["–", "–"] if plain is None else [three_figures(plain), three_figures(plain / figures["seconds"])]
        rows.append(row)
    note = (
        f"{part['inputs']:,} inputs, ResNet50 for 32×32, batches of {part['size']:,}; plain forward pass "
        f"{part['forward seconds']:.3g} s{_beside(smaller)}.\n{machine(results)}"
    )
    return note + "\n\n" + table(header, rows)


def _beside(smaller: dict[str, Any] | None) -> str:
    return "" if smaller is None else f", {smaller['forward seconds']:.3g} s in batches of {_SMALLER}"


def _lcc(results: dict[str, Any]) -> str:
    part = results["lcc"]
    judged = part["judging"]["criteria"]["LCC"]
    rows = [[f"{int(size):,}", f"{row['candidates per second']:,.0f}"] for size, row in judged.items()]
    text = table(["candidates at once", "judged per second"], rows)
    if "assess" in part:
        cost = part["assess"]
        figures = cost["criteria"]["LCC"]
        text = (
            f"{cost['inputs']:,} inputs, ResNet50 for 32×32, batches of {cost['size']:,}: plain forward pass "
            f"{cost['forward seconds']:.3g} s, with LCC {figures['seconds']:.3g} s, {figures['ratio']:.2f} times as "
            f"long.\n{machine(results)}\n\nCandidates whose outputs are given, after "
            f"{part['judging']['observed before']:,} observed inputs:\n\n{text}"
        )
    if "wide" in part:
        wide = part["wide"]["seconds of an update"]
        rows = [
            [f"{int(width):,}", *(f"{1e3 * row[name]:.3g}" for name in ("LCC", "NC(0.75)"))]
            for width, row in wide.items()
        ]
        text += "\n\nEight layers of one width, eight inputs, their outputs given; milliseconds of one update:\n\n"
        text += table(["width", "LCC", "NC(0.75)"], rows)
    return text


def _host(results: dict[str, Any]) -> str:
    part = results["host"]
    rows = []
    for network, sets in part["networks"].items():
        for name, row in sets.items():
            over, ratio = row["ms"] - row["forward ms"], row["ms"] / row["forward ms"]
            unit, most = host.TARGETS.get(name, ("", 0.0))
            seen = over if unit == "ms" else ratio
            aim = f"≤ {most:g} {unit} {'✓' if seen <= most else '✗'}" if unit else ""
            rows.append([network, name, f"{row['forward ms']:.2f}", f"{over:.2f}", f"{ratio:.1f}", aim])
    note = f"Batches of {part['batch']}; LSC and DSC have {part['traces']:,} training traces."
    header = ["network", "criteria", "forward pass, ms", "over it, ms", "× forward", "target"]
    return note + "\n\n" + table(header, rows) + "\n\n" + _starting(part.get("start", {}))


def _starting(seconds: dict[str, float]) -> str:
    rows = []
    for name, spent in seconds.items():
        most = host.START_TARGETS.get(name)
        rows.append(
            [f"`{name}`", f"{spent:.2f}", "" if most is None else f"≤ {most:g} {'✓' if spent <= most else '✗'}"]
        )
    return table(["what starts", "CPU seconds", "target"], rows)


def _growth(results: dict[str, Any]) -> str:
    """Seconds at both ends of each curve, and how steeply it rises at its end, beside what the definition says."""
    rows = []
    for curve, points in results["growth"].items():
        for name, row in points.items() if isinstance(points, dict) else ():
            known = [(int(size), each["seconds per 1,000"]) for size, each in row.items() if "error" not in each]
            if len(known) < 2:
                continue
            (first, begin), (last, end) = known[0], known[-1]
            (size, middle) = known[-2]
            # Adding nought keeps a rounded −0.04 from being shown as −0.0.
            seen = round(math.log(end / middle) / math.log(last / size), 1) + 0.0
            span = f"{first:,} → {last:,}"
            rows.append([curve, name, span, f"{begin:.3g} → {end:.3g}", f"{seen:.1f}", f"{theory(curve, name):g}"])
    return table(["of", "criterion", "sizes", "s per 1,000 inputs", "power at the end", "by definition"], rows)


def _place(results: dict[str, Any]) -> str:
    return "cpu" if "CPU" in results["machine"]["device"] else "gpu"


def _calibration(results: dict[str, Any]) -> str:
    part = results["calibration"]
    rows = [[kind, f"{row['seconds']:.3g}", f"{row['ratio']:.2f}"] for kind, row in part["kinds"].items()]
    note = f"{part['inputs']:,} training inputs; plain forward pass {part['forward seconds']:.3g} s."
    return note + "\n\n" + table(["learnt", "s", "× forward"], rows)


def _gain(results: dict[str, Any]) -> str:
    part = results["gain"]
    sizes = sorted({int(size) for row in part["criteria"].values() for size in row})
    rows = [
        [name, *(f"{row[str(s)]['candidates per second']:,.0f}" if str(s) in row else "–" for s in sizes)]
        for name, row in part["criteria"].items()
    ]
    note = f"Candidates judged per second, activations given, after {part['observed before']:,} observed inputs."
    return note + "\n\n" + table(["criterion", *(f"{s:,} at once" for s in sizes)], rows)


def _admit(results: dict[str, Any]) -> str:
    part = results["admit"]
    rows = [
        [name, f"{row['offered']:,}", f"{row['admitted']:,}", f"{row['offered per second']:,.0f}"]
        for name, row in part["criteria"].items()
    ]
    note = f"Each input judged on the state it meets, after {part['observed before']:,} observed inputs."
    return note + "\n\n" + table(["criterion", "offered", "admitted", "offered per second"], rows)


def _states(results: dict[str, Any]) -> str:
    rows = [
        [name, *(f"{row[f'{what} seconds']:.3g}" for what in ("save", "load", "merge")), show_bytes(row["file bytes"])]
        for name, row in results["states"]["criteria"].items()
    ]
    note = f"After {results['states']['observed']:,} inputs."
    return note + "\n\n" + table(["criterion", "save, s", "load, s", "merge, s", "file"], rows)


def _agreement(results: dict[str, Any]) -> str:
    rows = [
        [name, f"{row['device']:.10g}", f"{row['cpu']:.10g}", f"{row['relative']:.1e}"]
        for name, row in results["agreement"]["criteria"].items()
    ]
    return table(["criterion", "GPU", "CPU", "relative difference"], rows)


def _formats(results: dict[str, Any]) -> str:
    part = results["formats"]
    names = list(next(iter(part["formats"].values()))["criteria"])
    rows = [
        [kind, f"{row['forward seconds']:.3g}", *(ratio(row["criteria"][name]["ratio"]) for name in names)]
        for kind, row in part["formats"].items()
    ]
    note = f"{part['inputs']:,} inputs at batch {part['batch size']:,}; multiples of each model's own forward pass."
    return note + "\n\n" + table(["model", "forward, s", *names], rows)


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
    return note + "\n\n" + table(["criterion", "fit, s", "score all, s", "peak memory"], rows)


_MAKERS = {
    "assess": _assess,
    "small": recorded_tables.small,
    "half": recorded_tables.half,
    "wide": recorded_tables.wide,
    "lcc": _lcc,
    "operations": recorded_tables.operations,
    "profiles": recorded_tables.profiles,
    "growth": _growth,
    "host": _host,
    "calibration": _calibration,
    "gain": _gain,
    "admit": _admit,
    "states": _states,
    "formats": _formats,
    "agreement": _agreement,
    "scale": _scale,
    "scale-disk": lambda results: _scale(results, "scale-disk"),
}

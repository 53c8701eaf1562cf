"""Tables and plots of benchmark results, put into docs/performance.md between its markers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from benchmarks import host
from benchmarks.curves import draw
from benchmarks.growth import theory
from benchmarks.subjects import CPU_TARGETS, TARGETS
from neuralcov.core.memory import show_bytes

DOCS = Path(__file__).parent.parent / "docs"


def write(files: list[Path]) -> None:
    """Fill in every table for which some file has results, and draw the growth curves."""
    page = DOCS / "performance.md"
    text = page.read_text()
    runs = [json.loads(path.read_text()) for path in files]
    before = next((results for results in runs if results.get("label") == "before"), {})
    for results in runs:
        if results.get("label") == "before":
            continue
        where = _place(results)
        for part, make in _MAKERS.items():
            if part in results:
                text = _filled(text, f"{where} {part}", make({**results, "before": before}))
        if "growth" in results:
            draw(results["growth"], DOCS / "images" / f"growth-{where}.png")
    page.write_text(text)


def _filled(text: str, name: str, content: str) -> str:
    pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    return pattern.sub(lambda match: match[1] + content + "\n" + match[2], text)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _assess(results: dict[str, Any]) -> str:
    part, on_cpu = results["assess"], _place(results) == "cpu"
    aims = CPU_TARGETS if on_cpu else TARGETS["large"]
    header = ["criterion", "s", "× forward", "target", *([] if on_cpu else ["peak memory"])]
    rows = []
    for name, figures in part["criteria"].items():
        memory = [] if on_cpu else [show_bytes(figures["peak bytes"])]
        rows.append([name, *_against(aims.get(name), figures), *memory])
    note = (
        f"{part['inputs']:,} inputs, ResNet50 for 32×32, batches of {part['size']:,}; plain forward pass "
        f"{part['forward seconds']:.3g} s. {_machine(results)}"
    )
    return note + "\n\n" + _table(header, rows)


def _machine(results: dict[str, Any]) -> str:
    return f"{results['machine']['device']}, PyTorch {results['machine']['torch']}."


def _small(results: dict[str, Any]) -> str:
    part = results["small"]
    sizes, earlier = part["sizes"], results["before"].get("small", {}).get("sizes", {})
    note = f"{part['batches']} batches of each size, ResNet50 for 32×32. {_machine(results)}"
    tables = []
    for size, found in sizes.items():
        tables.append(_forward(f"Batches of {size}", found))
        tables.append(_compared(found, TARGETS["small"], earlier.get(size)))
    return "\n\n".join([note, *tables])


def _half(results: dict[str, Any]) -> str:
    part, earlier = results["half"], results["before"].get("half")
    note = f"{part['batches']} batches of {part['size']:,}, {part['format']}, ResNet50 for 32×32. {_machine(results)}"
    return "\n\n".join([note, _forward("Half precision", part), _compared(part, TARGETS["half"], earlier)])


def _wide(results: dict[str, Any]) -> str:
    part = results["wide"]
    earlier = results["before"].get("wide", {}).get("models", {})
    tables = []
    for model, found in part["models"].items():
        tables += [_forward(model, found), _compared(found, TARGETS["wide"], earlier.get(model))]
    note = f"{part['batches']} batches, random weights. {_machine(results)}"
    return "\n\n".join([note, *tables])


def _forward(title: str, found: dict[str, Any]) -> str:
    recorded = found["forward recorded, seconds of a batch"]
    aside = "" if recorded is None else f", {1e3 * recorded:.3g} ms as a CUDA graph of its own"
    return f"**{title}**: plain forward pass {1e3 * found['forward seconds of a batch']:.3g} ms a batch{aside}."


def _compared(found: dict[str, Any], aims: dict[str, float], earlier: dict[str, Any] | None) -> str:
    """Multiples of the forward pass by itself: all of a run, its later batches, plain calls, an earlier version."""
    header = ["criterion", "× forward", "target", "once recorded", "plain calls", *(["before"] if earlier else [])]
    rows = []
    for name, rules in found["criteria"].items():
        auto, plain = rules.get("auto", {}), rules.get("False", {})
        row = [name, *_against(aims.get(name), auto)[1:]]
        row += [_ratio(auto.get("steady ratio")), _ratio(plain.get("steady ratio"))]
        if earlier:
            row.append(_ratio(earlier["criteria"].get(name, {}).get("False", {}).get("steady ratio")))
        rows.append(row)
    return _table(header, rows)


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _operations(results: dict[str, Any]) -> str:
    part, earlier = results["operations"], results["before"].get("operations", {})
    kinds = ("operations", "started by the host")
    header = ["criterion", "operations, recorded", "calls of the host", "plain calls: operations", "calls of the host"]
    rows = [["forward pass alone", "", "", *(str(part["forward"][kind]) for kind in kinds)]]
    for name, rules in part["criteria"].items():
        rows.append([name, *(str(rules.get(rule, {}).get(kind, "–")) for rule in ("auto", "False") for kind in kinds)])
    if earlier:
        header += ["before: operations", "calls of the host"]
        rows[0] += [str(earlier["forward"][kind]) for kind in kinds]
        for row in rows[1:]:
            found = earlier["criteria"].get(row[0], {}).get("False", {})
            row += [str(found.get(kind, "–")) for kind in kinds]
    note = f"A batch of {part['size']}, ResNet50 for 32×32, the forward pass included. {_machine(results)}"
    return note + "\n\n" + _table(header, rows)


def _profiles(results: dict[str, Any]) -> str:
    sections = []
    for case in results["profiles"]["cases"]:
        where = f"batches of {case['where']}" if case["where"].isdigit() else case["where"]
        sections.append(
            f"**{case['criteria']}, {where}**: {case['device microseconds'] / 1e3:.2f} ms of work on the device a "
            f"batch, {case['host microseconds'] / 1e3:.2f} ms on the host, profiled. {case['explain']}."
        )
        rows = [
            [place, f"`{row['name']}`", f"{row['microseconds']:,.0f}", f"{row['calls']:g}"]
            for place in ("device", "host")
            for row in case[place][:6]
        ]
        sections.append(_table(["where", "operation", "µs a batch", "calls a batch"], rows))
    return "\n\n".join(sections)


def _lcc(results: dict[str, Any]) -> str:
    part = results["lcc"]
    judged = part["judging"]["criteria"]["LCC"]
    rows = [[f"{int(size):,}", f"{row['candidates per second']:,.0f}"] for size, row in judged.items()]
    text = _table(["candidates at once", "judged per second"], rows)
    if "assess" in part:
        cost = part["assess"]
        figures = cost["criteria"]["LCC"]
        text = (
            f"{cost['inputs']:,} inputs, ResNet50 for 32×32, batches of {cost['size']:,}: plain forward pass "
            f"{cost['forward seconds']:.3g} s, with LCC {figures['seconds']:.3g} s, {figures['ratio']:.2f} times as "
            f"long. {_machine(results)}\n\nCandidates whose outputs are given, after "
            f"{part['judging']['observed before']:,} observed inputs:\n\n{text}"
        )
    if "wide" in part:
        wide = part["wide"]["seconds of an update"]
        rows = [
            [f"{int(width):,}", *(f"{1e3 * row[name]:.3g}" for name in ("LCC", "NC(0.75)"))]
            for width, row in wide.items()
        ]
        text += "\n\nEight layers of one width, eight inputs, their outputs given; milliseconds of one update:\n\n"
        text += _table(["width", "LCC", "NC(0.75)"], rows)
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
    return note + "\n\n" + _table(header, rows) + "\n\n" + _starting(part.get("start", {}))


def _starting(seconds: dict[str, float]) -> str:
    rows = []
    for name, spent in seconds.items():
        most = host.START_TARGETS.get(name)
        rows.append(
            [f"`{name}`", f"{spent:.2f}", "" if most is None else f"≤ {most:g} {'✓' if spent <= most else '✗'}"]
        )
    return _table(["what starts", "CPU seconds", "target"], rows)


def _naive(results: dict[str, Any]) -> str:
    forms = results["naive"]["forms"]
    rows = [[name, _three_figures(row["seconds per 10,000"])] for name, row in forms.items()]
    return _table(["criterion", "naive form, s for 10,000 inputs"], rows)


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
            seen = math.log(end / middle) / math.log(last / size)
            span = f"{first:,} → {last:,}"
            rows.append([curve, name, span, f"{begin:.3g} → {end:.3g}", f"{seen:.1f}", f"{theory(curve, name):g}"])
    return _table(["of", "criterion", "sizes", "s per 1,000 inputs", "power at the end", "by definition"], rows)


def _against(aim: float | None, found: dict[str, Any] | None) -> list[str]:
    """Seconds, ratio, and whether the target is met."""
    if not found:
        return ["–", "–", ""]
    met = "" if aim is None else f"≤ {aim:g} {'✓' if found['ratio'] <= aim else '✗'}"
    seconds = found["seconds"]
    return ["" if isinstance(seconds, list) else f"{seconds:.3g}", f"{found['ratio']:.2f}", met]


def _three_figures(value: float) -> str:
    """Without the exponent that three figures of a large number would come with."""
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def _place(results: dict[str, Any]) -> str:
    return "cpu" if "CPU" in results["machine"]["device"] else "gpu"


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
        [kind, f"{row['forward seconds']:.3g}", *(_ratio(row["criteria"][name]["ratio"]) for name in names)]
        for kind, row in part["formats"].items()
    ]
    note = f"{part['inputs']:,} inputs at batch {part['batch size']:,}; multiples of each model's own forward pass."
    return note + "\n\n" + _table(["model", "forward, s", *names], rows)


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
    "small": _small,
    "half": _half,
    "wide": _wide,
    "lcc": _lcc,
    "operations": _operations,
    "profiles": _profiles,
    "growth": _growth,
    "host": _host,
    "naive": _naive,
    "calibration": _calibration,
    "gain": _gain,
    "admit": _admit,
    "states": _states,
    "formats": _formats,
    "agreement": _agreement,
    "scale": _scale,
    "scale-disk": lambda results: _scale(results, "scale-disk"),
}

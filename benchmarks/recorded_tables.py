"""Tables of what is recorded: small batches, half precision, wide transformers, operations and profiles."""

from __future__ import annotations

from typing import Any

from benchmarks.subjects import TARGETS
from benchmarks.tables import against, machine, ratio, table


def small(results: dict[str, Any]) -> str:
    """Show each batch size by itself."""
    part = results["small"]
    sizes, earlier = part["sizes"], results["before"].get("small", {}).get("sizes", {})
    note = f"{part['batches']} batches of each size, ResNet50 for 32×32. {machine(results)}"
    tables = []
    for size, found in sizes.items():
        tables.append(_forward(f"Batches of {size}", found))
        tables.append(_compared(found, TARGETS["small"], earlier.get(size)))
    return "\n\n".join([note, *tables])


def half(results: dict[str, Any]) -> str:
    """Show half precision with channels last."""
    part, earlier = results["half"], results["before"].get("half")
    note = f"{part['batches']} batches of {part['size']:,}, {part['format']}, ResNet50 for 32×32. {machine(results)}"
    return "\n\n".join([note, _forward("Half precision", part), _compared(part, TARGETS["half"], earlier)])


def wide(results: dict[str, Any]) -> str:
    """Show each transformer by itself."""
    part = results["wide"]
    earlier = results["before"].get("wide", {}).get("models", {})
    tables = []
    for model, found in part["models"].items():
        tables += [_forward(model, found), _compared(found, TARGETS["wide"], earlier.get(model))]
    note = f"{part['batches']} batches, random weights. {machine(results)}"
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
        row = [name, *against(aims.get(name), auto)[1:]]
        row += [ratio(auto.get("steady ratio")), ratio(plain.get("steady ratio"))]
        if earlier:
            row.append(ratio(earlier["criteria"].get(name, {}).get("False", {}).get("steady ratio")))
        rows.append(row)
    return table(header, rows)


def operations(results: dict[str, Any]) -> str:
    """Show what a batch asks of the device, recorded, by plain calls, and by an earlier version."""
    part, earlier = results["operations"], results["before"].get("operations", {})
    kinds = ("operations", "started by the host")
    header = ["criterion", "operations, recorded", "calls of the host", "plain calls: operations", "calls of the host"]
    rows = [["forward pass alone", "", "", *(_number(part["forward"], kind) for kind in kinds)]]
    for name, rules in part["criteria"].items():
        rows.append([name, *(_number(rules.get(rule, {}), kind) for rule in ("auto", "False") for kind in kinds)])
    if earlier:
        header += ["before: operations", "calls of the host"]
        rows[0] += [_number(earlier["forward"], kind) for kind in kinds]
        for row in rows[1:]:
            found = earlier["criteria"].get(row[0], {}).get("False", {})
            row += [_number(found, kind) for kind in kinds]
    note = f"A batch of {part['size']}, ResNet50 for 32×32, the forward pass included. {machine(results)}"
    return note + "\n\n" + table(header, rows)


def _number(counts: dict[str, int | None], kind: str) -> str:
    found = counts.get(kind)
    return "–" if found is None else f"{found:,}"


def profiles(results: dict[str, Any]) -> str:
    """Show the longest operations of each case."""
    sections = []
    for case in results["profiles"]["cases"]:
        where = f"batches of {case['where']}" if case["where"].isdigit() else case["where"]
        sections.append(
            f"**{case['criteria']}, {where}**: {case['device microseconds'] / 1e3:.2f} ms of work on the device a "
            f"batch, {case['host microseconds'] / 1e3:.2f} ms on the host, profiled.\n`explain()`: {case['explain']}."
        )
        rows = [
            [place, f"`{row['name']}`", f"{row['microseconds']:,.0f}", f"{row['calls']:g}"]
            for place in ("device", "host")
            for row in case[place][:6]
        ]
        sections.append(table(["where", "operation", "µs a batch", "calls a batch"], rows))
    return "\n\n".join(sections)

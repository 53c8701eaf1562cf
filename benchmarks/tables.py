"""What tables of benchmarks are made of: rows, ratios, targets met and missed, the machine."""

from __future__ import annotations

from typing import Any


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def machine(results: dict[str, Any]) -> str:
    """Name the device and PyTorch's version."""
    return f"{results['machine']['device']}, PyTorch {results['machine']['torch']}."


def ratio(value: float | None) -> str:
    """Show a multiple; a dash stands for what was not measured."""
    return "–" if value is None else f"{value:.2f}"


def against(aim: float | None, found: dict[str, Any] | None) -> list[str]:
    """Return seconds, ratio, and whether the target is met."""
    if not found:
        return ["–", "–", ""]
    met = "" if aim is None else f"≤ {aim:g} {'✓' if found['ratio'] <= aim else '✗'}"
    seconds = found["seconds"]
    return ["" if isinstance(seconds, list) else f"{seconds:.3g}", ratio(found["ratio"]), met]


def three_figures(value: float) -> str:
    """Show without the exponent that three figures of a large number would come with."""
    return f"{value:.3g}" if value < 999.5 else f"{float(f'{value:.3g}'):,.0f}"

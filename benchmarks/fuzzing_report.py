"""``python -m benchmarks.fuzzing_report FILE``: the tables of docs/fuzzing.md from what benchmarks.fuzzing measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import DOCS, _filled, _table


def main() -> None:
    """Fill in the page."""
    page = DOCS / "fuzzing.md"
    results = json.loads(Path(sys.argv[1]).read_text())
    where = "cpu" if "CPU" in results["about"]["device"] else "gpu"
    page.write_text(_filled(page.read_text(), f"{where} campaign", tables(results)))


def tables(results: dict[str, Any]) -> str:
    """What was measured with, how fast, where the time goes, and what was found."""
    about = results["about"]
    shown = [
        f"{about['device']}, PyTorch {about['torch']}; {about['seeds']:,} seeds, {about['training images']:,} training "
        f"images for calibration; the plain forward pass does "
        f"{about['plain forward, images per second']:,.0f} images per second.",
        _rates(results.get("rates", {})),
        _parts(results.get("parts of a wave", {})),
        _campaigns(results.get("campaigns", {})),
    ]
    return "\n\n".join(part for part in shown if part)


def _rates(rows: dict[str, Any]) -> str:
    header = ["guidance", "wave", "candidates judged per second", "mutants made per second", "share admitted"]
    lines = []
    for name, row in rows.items():
        if _failed(row):
            lines.append([name, "", _failed(row), "", ""])
            continue
        rate = row["judged per second"]
        each = [f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}", f"{row['mutants made per second']:,.0f}"]
        lines.append([name.split(",")[0], f"{row['wave']:,}", *each, f"{row['share admitted']:.1%}"])
    return _table(header, lines) if lines else ""


def _parts(rows: dict[str, Any]) -> str:
    found = rows.get("NLC", {})
    if not found or _failed(found):
        return ""
    each = ", ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in found["seconds per wave"].items())
    return f"A wave of {found['wave']:,} under NLC, with the device waited for after each part: {each}."


def _campaigns(rows: dict[str, Any]) -> str:
    header = ["guidance", "iterations", "outputs", "faults", "faults / outputs", "IS", "FID", "classes", "entropy",
              "admitted", "judged", "s"]  # fmt: skip
    lines = []
    for name, row in rows.items():
        if _failed(row):
            lines.append([name, _failed(row), *[""] * (len(header) - 2)])
            continue
        figures = [row["faults / outputs"], row.get("IS"), row.get("FID")]
        shown = ["–" if value is None else f"{value:.3f}" for value in figures]
        lines.append(
            [name.upper() if name != "random" else name, f"{row['iterations']:,}", f"{row['outputs']:,}",
             f"{row['faults']:,}", *shown, str(row["classes"]), f"{row['entropy']:.3f}", f"{row['share admitted']:.1%}",
             f"{row['judged']:,}", f"{row['seconds']:.1f}"]
        )  # fmt: skip
    if not lines:
        return ""
    first = next((row for row in rows.values() if not _failed(row)), None)
    wave = "" if first is None else f" (waves of {first['wave']:,})"
    return f"Campaigns{wave}, IS and FID of the outputs against the seeds:\n\n" + _table(header, lines)


def _failed(row: dict[str, Any]) -> str:
    return str(row.get("error") or row.get("left out") or "")


if __name__ == "__main__":
    main()

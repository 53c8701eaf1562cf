"""``python -m benchmarks.fuzzing_report FILE``: the tables of docs/fuzzing.md from what benchmarks.fuzzing measured."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from benchmarks.report import DOCS, filled
from benchmarks.tables import table
from neuralcov.sources.names import criterion_from_text


def main() -> None:
    """Fill in the page."""
    page = DOCS / "fuzzing.md"
    results = json.loads(Path(sys.argv[1]).read_text())
    where = "cpu" if "CPU" in results["about"]["device"] else "gpu"
    page.write_text(filled(page.read_text(), f"{where} campaign", tables(results)))


def tables(results: dict[str, Any]) -> str:
    """What was measured with, how fast, and where the time goes."""
    about = results["about"]
    shown = [
        _lines(
            f"{about['device']}, PyTorch {about['torch']}; {about['network']}, {about['seeds']:,} seeds, "
            f"{about['training images']:,} training images for calibration; the plain forward pass does "
            f"{about['plain forward, images per second']:,.0f} images per second."
        ),
        _rates(results.get("rates", {})),
        _stylising(results.get("stylising", {})),
        _parts(results.get("parts of a wave", {})),
    ]
    return "\n\n".join(part for part in shown if part)


def _rates(rows: dict[str, Any]) -> str:
    header = ["guide", "wave", "candidates judged per second", "mutants made per second", "share kept"]
    lines = []
    waiting = [_named(name) for name, row in rows.items() if "left out" in row]
    for name, row in rows.items():
        if "left out" in row:
            continue
        if "error" in row:
            lines.append([_named(name), "", row["error"], "", ""])
            continue
        rate = row["judged per second"]
        each = [f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}", f"{row['mutants made per second']:,.0f}"]
        lines.append([_named(name), f"{row['wave']:,}", *each, f"{row['share kept']:.1%}"])
    rows_table = table(header, lines) if lines else ""
    return rows_table + ("\n\n" + _lines(f"Not measured, for want of time: {', '.join(waiting)}.") if waiting else "")


def _lines(text: str) -> str:
    return textwrap.fill(text, 150, break_long_words=False, break_on_hyphens=False)


def _named(guide: str) -> str:
    """A guide with its criterion as it is printed.

    >>> _named("coverage lvc:refresh=WAVE"), _named("random")
    ('coverage by LVC once a wave', 'random')
    """
    kind, _, criterion = guide.partition(" ")
    if not criterion:
        return kind
    once = " once a wave" if "WAVE" in criterion else ""
    return f"{kind} by {criterion_from_text(criterion.replace(':refresh=WAVE', '')).name}{once}"


def _stylising(rows: dict[str, Any]) -> str:
    found = rows.get("AdaIN", {})
    if "per second" not in found:
        return ""
    return (
        f"Stylising, enlarged to {found['side']} pixels: {found['per second']:,.0f} pictures per second in batches of "
        f"{found['batch']:,}, {found['per second, one at a time']:,.0f} one at a time."
    )


def _parts(rows: dict[str, Any]) -> str:
    found = rows.get("NLC", {})
    if "seconds per wave" not in found:
        return ""
    each = ", ".join(f"{name} {1000 * seconds:.0f} ms" for name, seconds in found["seconds per wave"].items())
    return f"A wave of {found['wave']:,} under NLC, with the device waited for after each part: {each}."


if __name__ == "__main__":
    main()

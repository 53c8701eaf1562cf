"""A second measurement beside an evidence file, in lines."""

from __future__ import annotations

from neuralcov.core.counted import counted
from neuralcov.results.evidence import Evidence, FigureAgain, Verification

_MOST = 20


def verification_lines(found: Verification, stated: Evidence) -> list[str]:
    """Say how numbers were compared, which differ, and whether the file holds.

    Args:
        found: the comparison.
        stated: what the file says.
    """
    lines = [f"evidence {stated.sha256[:12]}… of {stated.made}, {_inputs(stated.results.get('inputs'))}"]
    if found.exact:
        lines.append("compared to the bit: device, software, batch size, precision and order are those of the file")
    else:
        lines.append(f"compared within {100 * found.tolerance:g} %, since these are not those of the file:")
        lines += [f"  {sentence}" for sentence in found.differs]
    lines += found.notes
    for figure in found.figures:
        if figure.name.startswith("values."):
            lines.append(_line(figure))
    wrong = [figure for figure in found.figures if not figure.agrees and not figure.name.startswith("values.")]
    lines += [_line(figure) for figure in wrong[:_MOST]]
    if len(wrong) > _MOST:
        lines.append(f"DIFFERS: {counted(len(wrong) - _MOST, 'more figure')}; --json has all of them")
    total, bad = len(found.figures), sum(not figure.agrees for figure in found.figures)
    end = f"agrees: all {counted(total, 'figure')}" if found.agrees else f"DIFFERS: {bad} of {counted(total, 'figure')}"
    return [*lines, end]


def _line(figure: FigureAgain) -> str:
    name = figure.name.removeprefix("values.")
    if figure.agrees:
        same = figure.stated == figure.found
        return f"agrees: {name} is {figure.stated}" + ("" if same else f" in the file, {figure.found} here")
    return f"DIFFERS: {name} is {figure.stated} in the file, {figure.found} here"


def _inputs(stated: object) -> str:
    """Return how many inputs a file states, whatever stands there."""
    return counted(stated, "input") if isinstance(stated, int) else f"{stated} inputs"

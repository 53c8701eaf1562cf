"""What the terminal shows at the end of a measured test run."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from neuralcov.core.counted import agreeing, counted
from neuralcov.integrations.pytest_contexts import Contexts
from neuralcov.integrations.pytest_models import HeardModel
from neuralcov.report.text import gate_lines, sanity_lines, show_value, summary

if TYPE_CHECKING:
    from neuralcov.integrations.pytest_session import Outcome

_MOST_TESTS = 40
_CRITERIA_SIDE_BY_SIDE = 3


def model_lines(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Yield the lines that tell of one model, each with its colour or none."""
    heard, result = outcome.model.heard, outcome.result
    if result is not None:
        neurons = sum(row.neurons for row in result.layers)
        title = (
            f"{counted(result.inputs, 'input')} in {counted(heard.passes, 'pass')}, "
            f"{counted(len(result.layers), 'layer')}, {counted(neurons, 'neuron')}"
        )
        yield from ((line, "") for line in summary(title, result.values, result.details).splitlines())
        if result.sanity is not None:
            for line in sanity_lines(result.sanity)[1:]:
                yield f"  {line}", "red" if line.startswith("ALARM") else ""
        yield from ((finding, "yellow") for finding in result.findings)
    yield from ((said, "yellow") for said in _of_passes(outcome.model))
    if outcome.contexts is not None:
        yield from ((line, "") for line in _context_lines(outcome.contexts))
    yield from ((note, "") for note in outcome.notes)
    if outcome.verdict is not None:
        for line in gate_lines(outcome.verdict):
            yield line, "red" if "NOT" in line.partition(":")[0] else "green" if outcome.verdict.met else ""
    yield from ((f"ERROR: {error}", "red") for error in outcome.errors)


def nothing_heard(model: HeardModel) -> str:
    """Return why there is no value."""
    heard, name = model.heard, f"--neuralcov {model.name}"
    if heard.empty:
        return (
            f"{name}: {counted(heard.empty, 'pass')} reached none of the layers: choose others with --neuralcov-layers"
        )
    if heard.outside:
        layer = next(iter(heard.outside))
        return f"{name}: no test ran the model itself, but parts of it such as {layer!r}: name the part that tests call"
    if model.fixture is not None and model.coverage is None:
        return f"{name}: no test requested this fixture"
    failed = f" ({counted(heard.failed, 'pass')} raised)" if heard.failed else ""
    return f"{name}: no test ran this model{failed}: name the very object that tests call, --no-neuralcov to do without"


def _of_passes(model: HeardModel) -> Iterator[str]:
    heard = model.heard
    if heard.training:
        were = agreeing(heard.training, "was", "were")
        yield (
            f"{heard.training:,} of {counted(heard.passes, 'pass')} {were} in training mode, dropout "
            f"and the like included"
        )
    if heard.outside:
        layer, times = next(iter(heard.outside.items()))
        yield (
            f"layers such as {layer!r} were also called outside a pass of the model "
            f"({counted(times, 'time')}), not heard"
        )
    for layer, times in heard.skipped.items():
        yield f"{times:,} of {counted(heard.passes, 'pass')} did not reach the layer {layer!r}"


def _context_lines(contexts: Contexts) -> Iterator[str]:
    from rich.console import Console
    from rich.table import Table

    rows = range(len(contexts.tests))
    if len(rows) > _MOST_TESTS:
        first = next(iter(contexts.lost.values()))
        most = sorted(rows, key=lambda row: -(first[row] or 0.0))[:_MOST_TESTS]
        shown = sorted(most)
    else:
        shown = list(rows)
    names = list(contexts.alone)
    for start in range(0, len(names), _CRITERIA_SIDE_BY_SIDE):
        table = Table(box=None, pad_edge=False)
        table.add_column("test", overflow="fold")
        table.add_column("inputs", justify="right")
        some = names[start : start + _CRITERIA_SIDE_BY_SIDE]
        for name in some:
            table.add_column(f"{name} gain", justify="right")
            table.add_column("lost", justify="right")
        for row in shown:
            figures = (show_value(part[name][row]) for name in some for part in (contexts.gain, contexts.lost))
            table.add_row(contexts.tests[row], f"{contexts.inputs[row]:,}", *figures)
        text = io.StringIO()
        Console(file=text, width=120, color_system=None).print(table)
        more = f" (those {_MOST_TESTS} of {len(rows)} without which most is lost)" if len(rows) > len(shown) else ""
        yield f"by test, in order: gain over those before, and lost without it{more}"
        yield from (line.rstrip() for line in text.getvalue().splitlines())

"""``neuralcov compare`` and ``neuralcov gate``: is one suite better than another, and good enough?"""

from __future__ import annotations

import datetime
from typing import Annotated

import typer
from rich.text import Text

from neuralcov.cli.asked import AllowAlarm, Baseline, Drop, Least, Most, PolicyFile, gather_policy
from neuralcov.cli.console import note, output
from neuralcov.cli.exits import NO
from neuralcov.cli.models import same_suite, show_models
from neuralcov.cli.states import compare_states, state_results
from neuralcov.core.errors import InputError
from neuralcov.core.files import name_of, write_json
from neuralcov.coverage.coverage import Coverage
from neuralcov.report.lacking import collect_table, lacking_table
from neuralcov.report.text import comparison_table, gate_lines
from neuralcov.results.gate import judge_gate
from neuralcov.results.lacking import find_lacking

Json = Annotated[str | None, typer.Option(help="Write the result as JSON.")]


def compare(
    first: Annotated[str, typer.Argument(help="A state file (.ncov).")],
    second: Annotated[str, typer.Argument(help="Another one, of the same criteria and layers.")],
    lacks: Annotated[
        bool, typer.Option("--lacks", help="Show what the first shows and the second lacks: what to collect next.")
    ] = False,
    models: Annotated[
        bool, typer.Option("--models", help="Compare one suite on two networks: figures relative to their training.")
    ] = False,
    inputs: Annotated[
        tuple[str, str] | None,
        typer.Option(help="With --models: the tables of both (measure --per-input), to tell which inputs change."),
    ] = None,
    json: Json = None,
) -> None:
    """Compare two suites; nobody wins within two standard errors."""
    if inputs is not None and not models:
        raise InputError("--inputs goes with --models, which compares one suite on two networks")
    if lacks and models:
        raise InputError("--lacks compares two suites on one network, --models one suite on two: give one of them")
    if lacks:
        _show_lacking(first, second, json)
        return
    coverages = Coverage.load(first), Coverage.load(second)
    if models:
        found = compare_states((first, second), coverages, models=True)[0]
        show_models(found, inputs, json, same=same_suite(*coverages))
        return
    found = compare_states((first, second), coverages)[0]
    if json is not None:
        write_json(json, found.to_json())
    console = output()
    for sentence in found.notes:
        console.print(Text(sentence, "bold red" if "ALARM" in sentence else "bold"), highlight=False)
    console.print(comparison_table(found))


def gate(
    file: Annotated[str, typer.Argument(help="A state file (.ncov).")],
    least: Least = None,
    most: Most = None,
    baseline: Baseline = None,
    max_drop: Drop = None,
    policy: PolicyFile = None,
    allow_alarm: AllowAlarm = None,
    json: Json = None,
    evidence: Annotated[
        str | None, typer.Option(help="Write what was measured, asked and found, for verify (.json).")
    ] = None,
) -> None:
    """Judge a suite: exit 0 if all that was asked is met, 1 if not."""
    asked, base = gather_policy(least, most, max_drop, policy, allow_alarm, baseline)
    if not asked.asks:
        raise InputError("nothing is asked: give --min, --max or --max-drop, or a --policy that does")
    coverage = Coverage.load(file)
    if base is None:
        comparison, result = None, state_results(file, coverage)
    else:
        comparison, result = compare_states((base, file), (Coverage.load(base), coverage))
    verdict = judge_gate(result, asked, datetime.datetime.now(datetime.UTC).date(), comparison)
    if json is not None:
        write_json(json, verdict.to_json())
    if evidence is not None:
        Coverage.load(file).evidence(result).judged(asked, verdict).write(evidence)
    console = output()
    for line in gate_lines(verdict):
        console.print(Text(line, "bold red" if "NOT" in line.partition(":")[0] else ""), highlight=False)
    if not verdict.met:
        raise typer.Exit(NO)


def _show_lacking(field: str, suite: str, json: str | None) -> None:
    """Show the kinds that one state shows and another lacks."""
    ours, theirs = Coverage.load(field), Coverage.load(suite)
    counts, tables = ours.lacking(theirs), (ours.input_table, theirs.input_table)
    found = find_lacking(state_results(field, ours), state_results(suite, theirs), counts, tables)
    if json is not None:
        write_json(json, found.to_json())
    if not found.rows:
        raise InputError(f"{name_of(field)}: no criterion here counts kinds; measure with LCC")
    output().print(lacking_table(found))
    if found.collect:
        output().print(collect_table(found))
    else:
        note("inputs to collect are named where both states keep their inputs: measure without --no-inputs")

"""``neuralcov compare`` and ``neuralcov gate``: is one suite better than another, and good enough?"""

from __future__ import annotations

import datetime
import warnings
from pathlib import Path, PurePath
from typing import Annotated

import typer
from rich.text import Text

from neuralcov.cli import policy as policies
from neuralcov.cli.console import note, output
from neuralcov.cli.exits import NO
from neuralcov.cli.models import same_suite, show_models
from neuralcov.core.errors import CoverageWarning, InputError
from neuralcov.core.files import AnyPath, name_of, write_json
from neuralcov.coverage.coverage import Coverage
from neuralcov.report.text import comparison_table, gate_lines, lacking_table
from neuralcov.results.compare import Comparison, Side
from neuralcov.results.compare import compare as compare_sides
from neuralcov.results.gate import judge_gate
from neuralcov.results.lacking import find_lacking
from neuralcov.results.policy import Policy
from neuralcov.results.results import Results

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
        found = _compared((first, second), coverages, models=True)[0]
        show_models(found, inputs, json, same=same_suite(*coverages))
        return
    found = _compared((first, second), coverages)[0]
    if json is not None:
        write_json(json, found.to_json())
    console = output()
    for sentence in found.notes:
        console.print(Text(sentence, "bold red" if "ALARM" in sentence else "bold"), highlight=False)
    console.print(comparison_table(found))


def gate(
    file: Annotated[str, typer.Argument(help="A state file (.ncov).")],
    least: Annotated[
        list[str] | None, typer.Option("--min", help="NAME=NUMBER, such as LCC.relative=0.9; repeat it.")
    ] = None,
    most: Annotated[list[str] | None, typer.Option("--max", help="NAME=NUMBER, such as LCC.off_map=0.1.")] = None,
    baseline: Annotated[str | None, typer.Option(help="A state file to compare with.")] = None,
    max_drop: Annotated[
        list[str] | None, typer.Option("--max-drop", help="How far below the baseline: 5%, or NAME=5%.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="The same in a file (.toml), with waivers.")] = None,
    allow_alarm: Annotated[
        list[str] | None, typer.Option("--allow-alarm", help="NAME=reason: an alarm that may stand.")
    ] = None,
    json: Json = None,
    evidence: Annotated[
        str | None, typer.Option(help="Write what was measured, asked and found, for verify (.json).")
    ] = None,
) -> None:
    """Judge a suite: exit 0 if all that was asked is met, 1 if not."""
    asked, base = policies.project_policy(Path.cwd())
    if policy is not None:
        more, its_base = policies.read_policy(policy)
        asked, base = asked.joined(more), its_base or base
    asked = asked.joined(
        Policy(
            policies.thresholds(least or [], "--min"),
            policies.thresholds(most or [], "--max"),
            policies.drops(max_drop or []),
            policies.reasons(allow_alarm or []),
        )
    )
    base = baseline or base
    if not asked.asks:
        raise InputError("nothing is asked: give --min, --max or --max-drop, or a --policy that does")
    coverage = Coverage.load(file)
    if base is None:
        comparison, result = None, _result(file, coverage)
    else:
        comparison, result = _compared((base, file), (Coverage.load(base), coverage))
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
    found = find_lacking(_result(field, ours), _result(suite, theirs), ours.lacking(theirs))
    if json is not None:
        write_json(json, found.to_json())
    if not found.rows:
        raise InputError(f"{name_of(field)}: no criterion here counts kinds; measure with LCC")
    output().print(lacking_table(found))


def _compared(
    paths: tuple[AnyPath, AnyPath], coverages: tuple[Coverage, Coverage], *, models: bool = False
) -> tuple[Comparison, Results]:
    """Compare two states, those that count kinds at the size of the smaller one."""
    fewer = min(coverage.inputs for coverage in coverages)
    if not fewer:
        empty = paths[0 if not coverages[0].inputs else 1]
        raise InputError(f"{name_of(empty)}: no input was observed: nothing to compare")
    sides = []
    for path, coverage in zip(paths, coverages, strict=True):
        # At its own size a suite is what it is.
        smaller = coverage.rarefied(fewer) if coverage.inputs > fewer else {}
        sides.append(Side(_result(path, coverage), {name: value for name, (value, _) in smaller.items()}))
    for side in sides:
        for sentence in side.result.findings:
            note(f"{side.result.suite}: {sentence}")
    return compare_sides(*sides, models=models), sides[1].result


def _result(path: AnyPath, coverage: Coverage) -> Results:
    with warnings.catch_warnings():
        # Told as notes.
        warnings.simplefilter("ignore", CoverageWarning)
        return coverage.results(suite=PurePath(name_of(path)).name)

"""``neuralcov report``: what a saved state says, as a page, for machines, or as text."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated

import typer

from neuralcov.cli.asked import AllowAlarm, Baseline, Drop, Least, Most, PolicyFile, gather_policy
from neuralcov.cli.console import output
from neuralcov.cli.exits import NO
from neuralcov.cli.states import compare_states
from neuralcov.core.errors import InputError
from neuralcov.core.files import name_of
from neuralcov.coverage.coverage import Coverage
from neuralcov.report.formats import FORMATS, format_of, write_report
from neuralcov.results.gate import judge_gate


def report(
    file: Annotated[str, typer.Argument(help="A state file (.ncov).")],
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            help="Where to, repeat it for several: .html, .json, .md, .xml (JUnit), .prom (OpenMetrics), .txt. "
            "Without it the report goes to the output as text, or as --format says.",
        ),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help=f"Where the ending does not tell: {', '.join(FORMATS)}.")
    ] = None,
    least: Least = None,
    most: Most = None,
    baseline: Baseline = None,
    max_drop: Drop = None,
    policy: PolicyFile = None,
    allow_alarm: AllowAlarm = None,
    model_name: Annotated[str | None, typer.Option(help="What to call the model.")] = None,
    suite_name: Annotated[str | None, typer.Option(help="What to call the suite.")] = None,
) -> None:
    """Report what a saved state says; the state file alone is enough. Exit 1 if something is asked and not met."""
    # Wrong names are refused before anything is read.
    forms = [format_of(path, form) for path in to or ()] or [format_of("", form or "text")]
    asked, base = gather_policy(least, most, max_drop, policy, allow_alarm, baseline)
    if asked.drops and base is None:
        raise InputError("--max-drop compares with a baseline: give --baseline FILE")
    coverage = Coverage.load(file)
    content = coverage.report_content(model=model_name or "", suite=suite_name or "")
    if not content.result.suite:
        content = replace(content, result=replace(content.result, suite=PurePath(name_of(file)).name))
    if base is not None:
        comparison, _ = compare_states((base, file), (Coverage.load(base), coverage))
        content = replace(content, comparison=comparison)
    if asked.asks:
        today = datetime.datetime.now(datetime.UTC).date()
        content = replace(content, verdict=judge_gate(content.result, asked, today, content.comparison))
    if not to:
        typer.echo(FORMATS[forms[0]](content), nl=False)
    for path, kind in zip(to or (), forms, strict=False):
        write_report(content, path, kind)
        output().print(f"wrote {path}", highlight=False)
    if content.verdict is not None and not content.verdict.met:
        raise typer.Exit(NO)

"""What is asked of a suite on a command line: the options that ``gate`` and ``report`` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from neuralcov.cli import policy as policies
from neuralcov.core.files import AnyPath
from neuralcov.results.policy import Policy

Least = Annotated[list[str] | None, typer.Option("--min", help="NAME=NUMBER, such as LCC.relative=0.9; repeat it.")]
Most = Annotated[list[str] | None, typer.Option("--max", help="NAME=NUMBER, such as LCC.off_map=0.1.")]
Baseline = Annotated[str | None, typer.Option(help="A state file to compare with.")]
Drop = Annotated[list[str] | None, typer.Option("--max-drop", help="How far below the baseline: 5%, or NAME=5%.")]
PolicyFile = Annotated[Path | None, typer.Option(help="The same in a file (.toml), with waivers.")]
AllowAlarm = Annotated[list[str] | None, typer.Option("--allow-alarm", help="NAME=reason: an alarm that may stand.")]


def gather_policy(
    least: Sequence[str] | None,
    most: Sequence[str] | None,
    max_drop: Sequence[str] | None,
    policy: Path | None,
    allow_alarm: Sequence[str] | None,
    baseline: str | None,
) -> tuple[Policy, AnyPath | None]:
    """Join what the project, a policy file and the options ask; return it with the baseline to compare with."""
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
    return asked, baseline or base

"""``neuralcov selftest``: does the installed package compute what it says?"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from neuralcov import criteria
from neuralcov.cli.console import note, output
from neuralcov.cli.exits import NO
from neuralcov.core.arguments import usable_device
from neuralcov.core.container import canonical
from neuralcov.core.counted import counted
from neuralcov.core.criterion import Criterion
from neuralcov.core.files import write_text
from neuralcov.core.find_criterion import criterion_class
from neuralcov.coverage.environment import software, to_utc
from neuralcov.testing.selftest import BRUTE_FORCE, Tested, record_of, try_criterion


def selftest(
    record: Annotated[str | None, typer.Option(help="Write what was tried and found (.json).")] = None,
    cases: Annotated[int, typer.Option(min=1, help="Cases for each law; ten times as many by brute force.")] = 4,
    device: Annotated[str, typer.Option(help="cuda, …: a device whose results must be the CPU's.")] = "cpu",
) -> None:
    """Try laws and brute force on every criterion of the installed package: exit 1 if something differs."""
    usable_device(device)
    tested = [try_criterion(criterion, cases=cases, device=device) for criterion in chosen_criteria()]
    if record is not None:
        found = record_of(tested, str(to_utc(time.time())), software())
        write_text(record, canonical(found) + "\n")
    console = output()
    console.print(_table(tested))
    failed = 0
    for each in tested:
        for trial in each.failures:
            failed += 1
            console.print(Text(f"DIFFERS: {each.name}: {trial.check}: {trial.failure}", "bold red"), highlight=False)
    checks = sum(len(each.trials) for each in tested)
    if failed:
        console.print(f"{failed} of {counted(checks, 'check')} failed", highlight=False)
        raise typer.Exit(NO)
    console.print(f"all {counted(checks, 'check')} of {counted(len(tested), 'criterion')} hold", highlight=False)


def chosen_criteria() -> list[Criterion[Any]]:
    """Return every criterion with settings that small cases show something of; those of other packages as they come."""
    ours: list[Criterion[Any]] = [
        criteria.NC(0.5),
        criteria.KMNC(7),
        criteria.NBC(),
        criteria.SNAC(),
        criteria.TKNC(2),
        criteria.TKNP(1),
        criteria.CC(2),
        criteria.SS(),
        criteria.NLC(),
        criteria.NLC(rule="all"),
        criteria.LVC(),
        criteria.LVC(relative=True),
        criteria.LCC(),
        criteria.LSC(1),
        criteria.DSC(0.1),
        criteria.MDSC(0.5),
        criteria.NPC(clusters=1, buckets=7),
        criteria.NPC(0.5, 0.6, 1, 4, "activation"),
    ]
    named = {type(criterion) for criterion in ours}
    others: list[Criterion[Any]] = []
    for name in sorted(Criterion.known):
        cls = criterion_class(name)
        if cls is None or cls in named:
            continue
        try:
            others.append(cls())
        except TypeError:
            note(f"{name} has no default settings and is not tried: use neuralcov.testing.check_criterion")
    return [*ours, *others]


def _table(tested: list[Tested]) -> Table:
    table = Table(title="selftest", title_justify="left")
    table.add_column("criterion", overflow="fold")
    table.add_column("laws", justify="right")
    table.add_column("by brute force", justify="right")
    table.add_column("seconds", justify="right")
    for each in tested:
        laws = [trial for trial in each.trials if trial.check != BRUTE_FORCE]
        held = sum(trial.failure is None for trial in laws)
        forced = next((trial for trial in each.trials if trial.check == BRUTE_FORCE), None)
        if forced is None:
            compared = "no such form"
        elif forced.failure is not None:
            compared = "DIFFERS"
        else:
            compared = f"{forced.cases - forced.undecided} of {forced.cases} cases equal"
            compared += f", {forced.undecided} undecided" if forced.undecided else ""
        table.add_row(Text(each.name), f"{held} of {len(laws)} hold", compared, f"{each.seconds:.1f}")
    return table

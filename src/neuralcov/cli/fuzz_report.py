"""What the fuzz commands tell: results, groups of faults, a sheet of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.table import Table

from neuralcov.cli.console import note, output
from neuralcov.cli.fuzz_setup import PreparedFuzzer
from neuralcov.fuzz.campaign.folder import write_errors
from neuralcov.fuzz.campaign.reader import StoredCampaign
from neuralcov.fuzz.campaign.result import Campaign, Stats
from neuralcov.fuzz.campaign.writer import save_shrunk
from neuralcov.fuzz.faults.fault import Fault, group_words, grouped
from neuralcov.fuzz.faults.pictures import fault_sheet, save_image, spread
from neuralcov.fuzz.faults.replay import Replay, Shrunk
from neuralcov.report.text import show_value

_ON_SHEET = 24
_GROUPS_SHOWN = 12


def show_campaign(archive: StoredCampaign) -> None:
    """How a campaign stands, from its folder alone."""
    notes, tally = archive.config["notes"], archive.book.tally
    order = notes.get("order", {})
    output().print(
        f"{order.get('model', 'a model')} on {order.get('data', 'inputs')}, {len(archive.book.labels)} seeds: "
        f"{tally.finished:,} done with in {tally.waves:,} waves, {tally.judged:,} candidates judged, "
        f"{tally.kept:,} kept ({tally.admitted:.1%}), {tally.faults:,} faults, {tally.seconds:.0f} s",
        soft_wrap=True,
        highlight=False,
    )
    lines = archive.folder.stats()
    if lines:
        _show_coverage(Stats(**lines[-1]))
    _show_groups(archive.faults, notes.get("classes"))


def conclude(bench: PreparedFuzzer, campaign: Campaign, shrink: bool, fail_on_faults: bool) -> None:
    """Tell what came of a campaign, and make its faults smaller."""
    console = output()
    stats = campaign.stats
    rate = stats.judged / stats.seconds if stats.seconds else 0.0
    console.print(
        f"{stats.iterations:,} seeds, {stats.judged:,} candidates judged ({rate:,.0f} per second), {stats.kept:,} kept "
        f"({stats.admitted:.1%} of judged), {stats.faults:,} faults in {stats.classes} classes "
        f"(entropy {stats.entropy:.3f})",
        soft_wrap=True,
        highlight=False,
    )
    _show_coverage(stats)
    for finding in campaign.findings:
        note(finding)
    if campaign.left_out:
        row, reason = next(iter(campaign.left_out.items()))
        note(f"{len(campaign.left_out)} inputs could not serve as seeds; input {row}: {reason}")
    _show_groups(campaign.faults, bench.samples.classes)
    if shrink and campaign.faults and bench.fuzzer.folder is not None:
        groups = grouped(campaign.faults).values()
        pictured = [fault for group in groups for fault in group[: bench.fuzzer.pictures]]
        draw_sheet(bench, shrink_and_save(bench, sorted(pictured, key=lambda fault: fault.number)))
    if fail_on_faults and campaign.faults:
        raise typer.Exit(1)


def shrink_and_save(bench: PreparedFuzzer, faults: list[Fault]) -> list[Shrunk]:
    """Make faults smaller and save them beside what they were."""
    fuzzer = bench.fuzzer
    assert fuzzer.folder is not None
    shrunk = fuzzer.shrink(faults)
    smaller = save_shrunk(fuzzer.folder, shrunk, fuzzer.mutations, fuzzer.space)
    output().print(f"{smaller} of {len(shrunk)} faults need fewer mutations than they had", highlight=False)
    return shrunk


def draw_sheet(bench: PreparedFuzzer, shrunk: Sequence[Shrunk]) -> None:
    """A sheet of some faults, from all groups."""
    fuzzer = bench.fuzzer
    assert fuzzer.folder is not None
    chosen = {fault.number for fault in spread([entry.fault for entry in shrunk], _ON_SHEET)}
    page = fault_sheet(
        [entry for entry in shrunk if entry.fault.number in chosen],
        bench.samples.inputs,
        fuzzer.space,
        fuzzer.mutations,
        classes=bench.samples.classes,
    )
    if page is not None:
        target = fuzzer.folder.path / "faults.png"
        with write_errors(target):
            save_image(page, target)
        output().print(f"some are drawn in {target}", soft_wrap=True, highlight=False)


def _show_coverage(stats: Stats) -> None:
    for name, value in stats.values.items():
        grown = f"coverage {name} {show_value(value)}, grown by {show_value(stats.growth[name])} since the seeds"
        output().print(grown, highlight=False, markup=False)


def _show_groups(faults: Sequence[Fault], classes: Sequence[str] | None) -> None:
    groups = grouped(faults)
    if not groups:
        return
    table = Table(title=f"{len(faults):,} faults in {len(groups)} groups", title_justify="left")
    for column in ("what", "faults", "first"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for group, members in list(groups.items())[:_GROUPS_SHOWN]:
        table.add_row(group_words(group, classes), str(len(members)), str(members[0].number))
    if len(groups) > _GROUPS_SHOWN:
        table.add_row(f"and {len(groups) - _GROUPS_SHOWN} more", "", "")
    output().print(table)


def export_line(part: str, count: int, folder: Path) -> str:
    """How much was written where.

    >>> export_line("queue", 400, Path("pictures/queue")), export_line("faults", 1, Path("pictures/faults"))
    ('400 kept mutants written to pictures/queue', '1 fault written to pictures/faults')
    """
    name = {"faults": "fault", "queue": "kept mutant", "seeds": "seed"}[part]
    return f"{count:,} {name if count == 1 else name + 's'} written to {folder}"


def replay_line(entry: Replay) -> str:
    """What a second look at a fault gave, in a line."""
    fault = entry.fault
    state = "is as it was" if entry.reproduced else "is still there" if entry.still_there else "is mended"
    made = "made anew to the last bit" if entry.rebuilt else "made anew it differs"
    return (
        f"fault {fault.number} ({', '.join(fault.kinds)}) {state}; predicted {fault.before} at first, {fault.after} "
        f"when found, {entry.after} now; {made}"
    )

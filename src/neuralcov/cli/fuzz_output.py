"""Tell and draw what campaigns found: results, groups of faults, quality, a sheet of pictures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import typer
from rich.table import Table
from torch import Tensor

from neuralcov.cli.console import note, output
from neuralcov.cli.fuzz_setup import PreparedFuzzer
from neuralcov.core.counted import agreeing, counted
from neuralcov.core.errors import CampaignError, InputError
from neuralcov.fuzz.campaign.folder import write_errors
from neuralcov.fuzz.campaign.reader import StoredCampaign
from neuralcov.fuzz.campaign.result import Campaign, Stats
from neuralcov.fuzz.campaign.writer import save_shrunk
from neuralcov.fuzz.faults.fault import Fault, best_example, group_words, grouped, main_cause, needed_cause
from neuralcov.fuzz.faults.pictures import fault_sheet, pick_from_groups, save_image
from neuralcov.fuzz.faults.quality import classes_reached, naturalness, scaled_entropy
from neuralcov.fuzz.faults.replay import Replay, Shrunk
from neuralcov.fuzz.faults.texts import difference
from neuralcov.fuzz.formats import Pixels, Tokens
from neuralcov.report.text import show_value
from neuralcov.sources.models import load_model

_ON_SHEET = 24
_GROUPS_SHOWN = 12
_TEXTS_SHOWN = 5


def show_campaign(campaign: StoredCampaign) -> None:
    """Show how a campaign stands, from its folder alone."""
    notes, counts = campaign.config.get("notes", {}), campaign.state.counts
    names = notes.get("order", {})
    output().print(
        f"{names.get('model', 'a model')} on {names.get('data', 'inputs')}, "
        f"{counted(len(campaign.state.labels), 'seed')}: "
        f"{counts.finished:,} searched in {counted(counts.waves, 'wave')}, "
        f"{counted(counts.judged, 'candidate')} judged, "
        f"{counts.kept:,} kept ({counts.admitted:.1%}), {counted(counts.distinct, 'different fault')} from "
        f"{counted(len(counts.broken), 'seed')}, {counts.seconds:.0f} s",
        soft_wrap=True,
        highlight=False,
    )
    log = campaign.folder.log
    if log.left_out:
        why = "one is being written, a kill cut it short, or it is damaged"
        note(f"{log.path}: the last {log.left_out:,} bytes are no whole wave and were left out: {why}")
    lines = campaign.folder.stats()
    if lines:
        _show_coverage(_stats_of(lines[-1], campaign.folder.path / "stats.jsonl"))
    _show_groups(campaign.faults, notes.get("classes"))
    cause = main_cause(campaign.faults, campaign.mutations)
    if cause is not None:
        output().print(cause, soft_wrap=True, highlight=False)


def _stats_of(line: Mapping[str, Any], path: Path) -> Stats:
    """Read a line of figures, or refuse one that no campaign writes."""
    try:
        found = Stats(**line)
        fine = found.values.keys() == found.growth.keys() and all(
            isinstance(number, (int, float)) and abs(number) <= sys.float_info.max
            for number in (*found.values.values(), *found.growth.values())
        )
        if not fine:
            raise TypeError("figures that are no numbers")
        _ = found.still_new, found.still_faults  # read off the figures
    except (TypeError, AttributeError, ValueError, KeyError, OverflowError) as error:
        raise CampaignError(f"{path}: the last line is damaged ({error}); remove that line") from error
    return found


def conclude(prepared: PreparedFuzzer, campaign: Campaign, shrink: bool, fail_on_faults: bool) -> None:
    """Tell what came of a campaign, and make its faults smaller."""
    console = output()
    stats = campaign.stats
    rate = stats.judged / stats.seconds if stats.seconds else 0.0
    console.print(
        f"{counted(stats.iterations, 'seed')}, {counted(stats.judged, 'candidate')} judged "
        f"({rate:,.0f} per second), {stats.kept:,} kept ({stats.admitted:.1%} of judged); "
        f"{counted(stats.distinct, 'different fault')} from {counted(stats.roots, 'seed')} in "
        f"{counted(stats.classes, 'class')} (entropy {stats.entropy:.3f}); {counted(stats.faulty, 'mutant')} misread, "
        f"{stats.faulty_kept:,} of them kept",
        soft_wrap=True,
        highlight=False,
    )
    _show_coverage(stats)
    for finding in campaign.findings:
        note(finding)
    if campaign.excluded:
        row, reason = next(iter(campaign.excluded.items()))
        note(
            f"{counted(len(campaign.excluded), 'input')} could not serve as "
            f"{agreeing(len(campaign.excluded), 'a seed', 'seeds')}; input {row}: {reason}"
        )
    _show_groups(campaign.faults, prepared.samples.classes)
    fuzzer = prepared.fuzzer
    cause = main_cause(campaign.faults, fuzzer.mutations)
    if cause is not None:
        console.print(cause, soft_wrap=True, highlight=False)
    if shrink and campaign.faults and fuzzer.folder is not None:
        groups = grouped(campaign.faults).values()
        pictured = [fault for group in groups for fault in group[: fuzzer.settings.pictures]]
        shrunk = shrink_and_save(prepared, sorted(pictured, key=lambda fault: fault.number))
        draw_sheet(prepared, shrunk)
        _show_texts(prepared, shrunk)
    if fail_on_faults and campaign.faults:
        raise typer.Exit(1)


def shrink_and_save(prepared: PreparedFuzzer, faults: list[Fault]) -> list[Shrunk]:
    """Make faults smaller and save them beside what they were."""
    fuzzer = prepared.fuzzer
    assert fuzzer.folder is not None
    shrunk = fuzzer.shrink(faults)
    smaller = save_shrunk(fuzzer.folder, shrunk, fuzzer.mutations, fuzzer.input_format)
    output().print(
        f"{smaller} of {counted(len(shrunk), 'fault')} {agreeing(smaller, 'needs', 'need')} fewer "
        "mutations than before",
        highlight=False,
    )
    cause = needed_cause([entry.steps for entry in shrunk], fuzzer.mutations)
    if cause is not None:
        output().print(cause, soft_wrap=True, highlight=False)
    return shrunk


def draw_sheet(prepared: PreparedFuzzer, shrunk: Sequence[Shrunk]) -> None:
    """Draw a sheet of some faults, from all groups."""
    fuzzer = prepared.fuzzer
    assert fuzzer.folder is not None
    chosen = {fault.number for fault in pick_from_groups([entry.fault for entry in shrunk], _ON_SHEET)}
    page = fault_sheet(
        [entry for entry in shrunk if entry.fault.number in chosen],
        prepared.samples.inputs,
        fuzzer.input_format,
        fuzzer.mutations,
        classes=prepared.samples.classes,
    )
    if page is not None:
        target = fuzzer.folder.path / "faults.png"
        with write_errors(target):
            save_image(page, target)
        output().print(f"some are drawn in {target}", soft_wrap=True, highlight=False)


def _show_texts(prepared: PreparedFuzzer, shrunk: Sequence[Shrunk]) -> None:
    """Show the best example of the largest groups of faults in texts: what changed, between brackets."""
    told = prepared.fuzzer.input_format
    if not isinstance(told, Tokens):
        return
    by_number = {entry.fault.number: entry for entry in shrunk}
    groups = grouped(entry.fault for entry in shrunk)
    for group, members in list(groups.items())[:_TEXTS_SHOWN]:
        entry = by_number[best_example(members).number]
        origin = told.text(prepared.samples.inputs[entry.fault.root])
        said = difference(origin, told.text(entry.input))
        output().print(
            f"{group_words(group, prepared.samples.classes)}: {said}", soft_wrap=True, highlight=False, markup=False
        )


def mended_line(found: Sequence[Replay]) -> str:
    """Say how many faults are there no more."""
    mended = sum(not entry.still_there for entry in found)
    return f"{mended} of {counted(len(found), 'fault')} {agreeing(mended, 'is', 'are')} mended"


def export_line(part: str, count: int, folder: Path) -> str:
    """Say how much was written where.

    >>> export_line("queue", 400, Path("pictures/queue")), export_line("faults", 1, Path("pictures/faults"))
    ('400 kept mutants written to pictures/queue', '1 fault written to pictures/faults')
    """
    name = {"faults": "fault", "queue": "kept mutant", "seeds": "seed"}[part]
    return f"{count:,} {name if count == 1 else name + 's'} written to {folder}"


def replay_line(entry: Replay) -> str:
    """Say what a second look at a fault gave, in a line."""
    fault = entry.fault
    state = "is as it was" if entry.reproduced else "is still there" if entry.still_there else "is mended"
    made = "made anew to the last bit" if entry.rebuilt else "made anew it differs"
    return (
        f"fault {fault.number} ({', '.join(fault.fault_types)}) {state}; predicted {fault.before} at first, "
        f"{fault.after} when found, {entry.after} now; {made}"
    )


def measure_quality(campaign: StoredCampaign, features: str | None, limit: int | None, device: str) -> dict[str, Any]:
    """Return faults per output, classes and entropy; with a network for features, also IS and Fréchet distance.

    A mutant that breaks the model (NaN, an exception, a time-out) is a fault but no output, since it is not kept:
    "faults / outputs" is the share of the outputs that are faults, and leaves it out.

    Args:
        campaign: read from its folder.
        features: a network from pixels in [0, 1] to features, as on the command line, such as ``zoo:inception``.
        limit: at most so many outputs, spread over the campaign.
        device: where the network runs.
    """
    among = sum(fault.entry is not None for fault in campaign.faults)
    reached = [fault.after for fault in campaign.faults if fault.after is not None]
    outputs = campaign.state.counts.kept
    found: dict[str, Any] = {
        "outputs": outputs,
        "faults": len(campaign.faults),
        "different faults": campaign.state.counts.distinct,
        "seeds broken": len(campaign.state.counts.broken),
        "mutants misread": campaign.state.counts.faulty,
        "faults among outputs": among,
        "faults / outputs": among / outputs if outputs else None,
        "classes reached": classes_reached(reached),
        "scaled entropy": scaled_entropy(reached),
    }
    if features is None:
        return found
    if not isinstance(campaign.input_format, Pixels):
        raise InputError("Inception Score and Fréchet distance are of pictures: this campaign is over texts")
    network, corpus = _features(features, device), campaign.state.corpus
    rows = torch.arange(corpus.roots, len(corpus))
    if limit is not None and limit < len(rows):
        rows = rows[torch.linspace(0, len(rows) - 1, limit).long()]
    images = campaign.input_format.decode(corpus.inputs(rows.numpy())).to(device)
    seeds = campaign.input_format.decode(corpus.inputs(slice(0, corpus.roots))).to(device)
    return found | naturalness(images, seeds, network).to_json()


def _features(text: str, device: str) -> Callable[[Tensor], Tensor]:
    model: Any = load_model(text, None, device)
    # A network that reads pixels of any size by itself, as zoo:inception does, wants them in colour.
    if not hasattr(model, "of_pixels"):
        return model  # type: ignore[no-any-return]

    def in_colour(pixels: Tensor) -> Tensor:
        return model.of_pixels(pixels.expand(-1, 3, -1, -1))  # type: ignore[no-any-return]

    return in_colour


def _show_coverage(stats: Stats) -> None:
    for name, value in stats.values.items():
        grown = f"coverage {name} {show_value(value)}, grown by {show_value(stats.growth[name])} since the seeds"
        output().print(grown, highlight=False, markup=False)
    for told in (stats.still_new, stats.still_faults):
        if told:
            output().print(told, highlight=False, markup=False)


def _show_groups(faults: Sequence[Fault], classes: Sequence[str] | None) -> None:
    groups = grouped(faults)
    if not groups:
        return
    table = Table(
        title=f"{counted(len(faults), 'saved fault')} in {counted(len(groups), 'group')}", title_justify="left"
    )
    for column in ("what", "faults", "look at"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for group, members in list(groups.items())[:_GROUPS_SHOWN]:
        table.add_row(group_words(group, classes), str(len(members)), str(best_example(members).number))
    if len(groups) > _GROUPS_SHOWN:
        table.add_row(f"and {len(groups) - _GROUPS_SHOWN} more", "", "")
    output().print(table)

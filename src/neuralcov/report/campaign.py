"""The page of a fuzzing campaign: counts over time, what became what, which mutations did it, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from neuralcov.core.counted import counted
from neuralcov.report import svg
from neuralcov.report.content import BAD, FINE, Said
from neuralcov.report.page import picture_source, render_page
from neuralcov.report.tables import Cell, PageTable, TableRow
from neuralcov.report.text import show_share, show_value

_PAIRS, _GROUPS = 32, 20
_TEXT = 400
# Charts have no more points than a screen has room for.
_POINTS = 240
Series = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class FaultPair:
    """Hold one fault to look at: the input before and after, as pictures (PNG) or texts.

    Args:
        number: of the fault.
        group: what became what, in words.
        mutations: the way that led there, in words.
        before: the root input.
        after: the mutant.
        said: what the model says of both, in words.
    """

    number: int
    group: str
    mutations: tuple[str, ...]
    before: bytes | str | None = None
    after: bytes | str | None = None
    said: str = ""


@dataclass(frozen=True)
class CampaignContent:
    """Hold all that the page of a campaign renders, as plain data.

    Args:
        model: what the model is called.
        data: what the seeds are called.
        seeds: how many there are.
        faults: how many faults were saved.
        distinct: how many different ones were seen.
        figures: names and values of how the campaign stands, as text.
        coverage: by criterion, the value and what it has grown by.
        series: by name, counts over time: (seconds, count) each, rising.
        groups: what became what, with how many faults and the number of one to look at.
        mutations: by name, in how many faults it took part, and in how many it was alone.
        pairs: some faults before and after, of all groups.
        notes: sentences to bear in mind.
    """

    model: str
    data: str
    seeds: int
    faults: int
    distinct: int
    figures: tuple[tuple[str, str], ...] = ()
    coverage: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    series: Mapping[str, Series] = field(default_factory=dict)
    groups: tuple[tuple[str, int, int], ...] = ()
    mutations: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    pairs: tuple[FaultPair, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Shown:
    """Hold a pair as the page shows it."""

    pair: FaultPair
    pictures: tuple[str, str] | None
    texts: tuple[str, str] | None


def render_campaign(content: CampaignContent) -> str:
    """Return the page of a campaign, which needs nothing else."""
    return render_page(
        "campaign.html",
        title=f"neuralcov: campaign on {content.model}",
        content=content,
        headline=campaign_headline(content),
        charts=[
            (name, svg.count_chart(name, thinned(points)), f"{points[-1][1]:,.6g} after {points[-1][0]:,.0f} s.")
            for name, points in content.series.items()
            if len(points) > 1
        ],
        coverage=[(name, show_value(value), show_value(grown)) for name, (value, grown) in content.coverage.items()],
        groups=_group_table(content),
        mutations=_mutation_table(content),
        pairs=[_shown(pair) for pair in content.pairs[:_PAIRS]],
        more=max(0, content.faults - min(len(content.pairs), _PAIRS)),
    )


def campaign_headline(content: CampaignContent) -> Said:
    """Say in one sentence what the campaign found."""
    if not content.faults:
        return Said(FINE, "No fault was found.", "That proves nothing: see whether candidates still show new things.")
    groups = f"{len(content.groups):,} group{'s' if len(content.groups) != 1 else ''}"
    found = "1 fault was found." if content.distinct == 1 else f"{content.distinct:,} different faults were found."
    saved = "1 is saved" if content.faults == 1 else f"{content.faults:,} are saved"
    return Said(BAD, found, f"{saved}, in {groups} of what became what.")


def thinned(points: Series) -> Series:
    """Return at most so many points, evenly spaced, the first and the last among them.

    >>> len(thinned([(float(i), float(i)) for i in range(1000)]))
    240
    """
    if len(points) <= _POINTS:
        return points
    return [points[round(i * (len(points) - 1) / (_POINTS - 1))] for i in range(_POINTS)]


def _group_table(content: CampaignContent) -> PageTable | None:
    if not content.groups:
        return None
    rows = tuple(
        TableRow(
            words,
            (
                Cell(f"{count:,}", str(count)),
                Cell(show_share(count / content.faults), str(count), svg.bar(count / content.faults)),
                Cell(str(example), str(example)),
            ),
        )
        for words, count, example in content.groups[:_GROUPS]
    )
    rest = content.groups[_GROUPS:]
    notes = (
        (f"And {counted(len(rest), 'smaller group')}, of {counted(sum(count for _, count, _ in rest), 'fault')}.",)
        if rest
        else ()
    )
    heads = (("What became what", False), ("Faults", True), ("Share", True), ("Look at", True))
    return PageTable("t-groups", "Faults by what became what", heads, rows, notes)


def _mutation_table(content: CampaignContent) -> PageTable | None:
    if not content.mutations or not content.faults:
        return None
    rows = tuple(
        TableRow(
            name,
            (
                Cell(f"{count:,}", str(count)),
                Cell(show_share(count / content.faults), str(count), svg.bar(count / content.faults)),
                Cell(f"{alone:,}", str(alone)),
            ),
        )
        for name, (count, alone) in content.mutations.items()
    )
    heads = (("Mutation", False), ("Faults", True), ("Share", True), ("Alone", True))
    return PageTable("t-mutations", "Faults by mutation", heads, rows)


def _shown(pair: FaultPair) -> _Shown:
    before, after = pair.before, pair.after
    if isinstance(before, bytes) and isinstance(after, bytes):
        sources = picture_source(before), picture_source(after)
        if sources[0] is not None and sources[1] is not None:
            return _Shown(pair, (sources[0], sources[1]), None)
    if isinstance(before, str) and isinstance(after, str):
        return _Shown(pair, None, (before[:_TEXT], after[:_TEXT]))
    return _Shown(pair, None, None)

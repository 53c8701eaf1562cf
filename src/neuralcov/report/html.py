"""The report as one HTML page, and a coverage in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from neuralcov.report import content as words
from neuralcov.report import identity, suite_map, svg, tables
from neuralcov.report.content import ReportContent
from neuralcov.report.page import picture_source, render_page, render_part
from neuralcov.report.text import show_share, show_value
from neuralcov.results.results import Results
from neuralcov.results.sections import FewerInputs, GalleryItem, GrowthCurve

_PICTURES = 64
_TEXT = 400
_ITEMS = 24
_CARDS_IN_NOTEBOOK = 40
# Cheaper curves need no word about their cost.
_COST_TOLD = 0.001


@dataclass(frozen=True)
class Chart:
    """Hold a chart with its title and what it says."""

    title: str
    drawn: str
    caption: str


@dataclass(frozen=True)
class Shot:
    """Hold one input to look at: the source of its picture or its text, and the lines below."""

    picture: str | None
    text: str
    name: str
    why: str
    said: str
    wrong: bool
    letter: str = ""


@dataclass(frozen=True)
class Shots:
    """Hold the inputs that are shown for one reason."""

    title: str
    explanation: str
    items: tuple[Shot, ...]
    pictures: bool
    more: int


def render_html(content: ReportContent) -> str:
    """Return the report as one page that needs nothing else."""
    result = content.result
    checks = words.sanity_checks(result)
    return render_page(
        "report.html",
        title=f"neuralcov: {content.title}",
        content=content,
        result=result,
        headline=words.headline(content),
        steps=words.next_steps(content),
        checks=checks,
        warnings=words.warnings(result),
        remarks=words.remarks_of(result),
        when=_when(result),
        cards=[
            (card, svg.sparkline(card.curve, card.reference) if card.curve else "") for card in words.cards(content)
        ],
        growth=list(_growth(result)),
        layers=tables.layer_table(result),
        offmap=any(row.figures for row in result.layers),
        slices=tables.slice_page_tables(result),
        map=suite_map.scatter(result.map) if result.map is not None else "",
        outside=suite_map.outside(result.map) if result.map is not None and result.map.suite else 0,
        galleries=list(_galleries(result)),
        fewer=None if result.fewer is None else _fewer(result.fewer, result.growth.get(result.fewer.criterion)),
        comparison=None if content.comparison is None else tables.comparison_page_table(content.comparison),
        evidence=identity.evidence_rows(result),
        procedure=identity.procedure_rows(result),
        forecasts=any(curve.forecast for curve in result.growth.values()),
        pictured=any(item.picture is not None for gallery in result.galleries for item in gallery.items),
        absent=absent_sections(content),
        share=show_share,
        marks=svg.KEY,
    )


def render_summary(content: ReportContent) -> str:
    """Return what a notebook shows: alarms, then values, without script and style sheet."""
    cards = words.cards(content)
    return render_part(
        "summary.html",
        result=content.result,
        cards=cards[:_CARDS_IN_NOTEBOOK],
        more=len(cards) - len(cards[:_CARDS_IN_NOTEBOOK]),
    )


def absent_sections(content: ReportContent) -> list[str]:
    """Say, of every section that is not there, how to get it."""
    result = content.result
    said = []
    if content.verdict is None:
        said.append("Gates: give --min, --max or --policy, as to neuralcov gate.")
    if result.sanity is None:
        said.append("Sanity: it is not told for a suite on top of another one; measure without --init.")
    if not result.growth:
        said.append("Growth: it is noted by assess, and not known for states that were merged or updated by hand.")
    if not result.references:
        said.append("References: hold some training inputs out of calibration, and measure again.")
    if not result.slices:
        said.append("Classes and slices: measure with --slices class, or assess(..., slices=['class']).")
    if result.map is None:
        said.append("Map: it needs training data and assess(..., keep_inputs=True), as measure --save does by itself.")
    if not result.galleries:
        said.append(
            "Inputs: this measurement kept none to look at; call assess(..., keep_inputs=True), or measure without "
            "--no-inputs. neuralcov rank lists them by surprise."
        )
    if result.fewer is None:
        said.append(
            "How few would do: keep inputs, and measure a criterion that ticks off cells; or ask neuralcov minimise."
        )
    if content.comparison is None:
        said.append("Comparison: give --baseline FILE.")
    return said


def _growth(result: Results) -> Iterator[Chart]:
    for name, curve in result.growth.items():
        if len(curve.sizes) > 1 and math.isfinite(curve.values[-1]):
            yield Chart(name, svg.growth_chart(name, curve, result.references.get(name)), _growth_words(curve))


def _growth_words(curve: GrowthCurve) -> str:
    """Say what more of the same would add, and what the curve's order means."""
    if curve.order == "as measured":
        order = "The curve follows the suite’s order."
        half = curve.second_half
        if half is not None:
            order = f"{words.share_added(half)} of it came with the second half. {order}"
        if curve.cost is not None and curve.cost >= _COST_TOLD:
            order += f" Reading {len(curve.sizes)} values took {show_share(curve.cost)} of the run."
    else:
        order = "Each point is the mean over all orders."
    ahead = [(size, value, error) for size, value, error in curve.forecast if math.isfinite(value)]
    if not ahead or not curve.values[-1] > 0:
        return order
    size, value, error = ahead[0]
    gain = value / curve.values[-1] - 1
    told = f"about {show_share(gain)}" if gain >= 0.005 else "next to nothing"
    beside = f" ({show_value(value)} ± {show_value(error)})" if error is not None else f" ({show_value(value)})"
    return f"{size - curve.sizes[-1]:,} more inputs of this kind would add {told}{beside}. {order}"


def _when(result: Results) -> str:
    """Return the day and minute of the measurement, where they are known."""
    told = str(result.provenance.get("measured") or "")
    return f"{told[:10]} {told[11:16]} UTC" if told else ""


def _galleries(result: Results) -> Iterator[Shots]:
    left = _PICTURES
    letters = (
        {} if result.map is None else {n: a for a, (n, *_) in zip(suite_map.LETTERS, result.map.named, strict=False)}
    )
    for gallery in result.galleries:
        items = []
        for item in gallery.items[:_ITEMS]:
            source = picture_source(item.picture) if item.picture is not None and left else None
            left -= source is not None
            items.append(replace(_shot(item, source), letter=letters.get(item.id, "")))
        pictures = any(item.picture is not None for item in items)
        yield Shots(gallery.title, gallery.explanation, tuple(items), pictures, len(gallery.items) - len(items))
        letters = {}


def _shot(item: GalleryItem, source: str | None) -> Shot:
    text = item.text or ""
    wrong = item.label is not None and item.prediction is not None and item.label != item.prediction
    said = "" if item.prediction is None else f"said {item.prediction}"
    if item.label is not None:
        said = f"{said}, is {item.label}" if said else f"is {item.label}"
    return Shot(source, text[:_TEXT] + ("…" if len(text) > _TEXT else ""), item.id, item.why, said, wrong)


def _fewer(fewer: FewerInputs, curve: GrowthCurve | None) -> tuple[str, tables.PageTable]:
    drawn = None if curve is None or curve.order != "rarefied" else [_at_random(curve, one) for one in fewer.shares]
    heads = [("Inputs", False), (f"{fewer.criterion} kept", True)]
    heads += [("At random", True)] if drawn is not None else []
    heads += [("Mistakes kept", True)] if fewer.mistakes is not None else []
    rows = []
    for place, size in enumerate(fewer.sizes):
        cells = [tables.Cell(show_share(fewer.shares[place]), str(fewer.shares[place]))]
        if drawn is not None:
            cells.append(tables.Cell("–" if drawn[place] is None else f"{drawn[place]:,}", str(drawn[place] or "–")))
        if fewer.mistakes is not None:
            cells.append(tables.Cell(show_share(fewer.mistakes[place]), str(fewer.mistakes[place])))
        rows.append(tables.TableRow(f"{size:,}", tuple(cells)))
    table = tables.PageTable("t-fewer", "How few inputs would do", tuple(heads), tuple(rows))
    return svg.kept_chart(fewer), table


def _at_random(curve: GrowthCurve, share: float) -> int | None:
    """Return how many inputs drawn at random keep a share of the value; ``None`` below the first size of a curve."""
    wanted = share * curve.values[-1]
    if wanted < curve.values[0]:
        return None
    for (low, below), (high, above) in pairwise(zip(curve.sizes, curve.values, strict=True)):
        if below <= wanted <= above:
            return low if above == below else round(low + (high - low) * (wanted - below) / (above - below))
    return curve.sizes[-1]

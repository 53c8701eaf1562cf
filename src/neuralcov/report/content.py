"""What a report is made from, and what it says in words: headline, next steps, checks, one card per criterion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from neuralcov.core.counted import agreeing, counted
from neuralcov.core.input_names import CLASS
from neuralcov.report.text import as_ranges, figures_in_words, show_share, show_value, value_with_error
from neuralcov.results.compare import Comparison
from neuralcov.results.figures import find_figure
from neuralcov.results.gate import Verdict
from neuralcov.results.references import AS_VARIED, LESS, MORE, Against, against_reference
from neuralcov.results.results import Results
from neuralcov.results.sanity import Sanity
from neuralcov.results.scale import show_scale
from neuralcov.results.sections import GrowthCurve, Reference

# States of a headline or a check: each has a sign of its own beside its colour.
FINE, REMARK, BAD = "ok", "warn", "bad"
_STEPS = 3
_LARGE = ("relative", "relative_error", "off_map", "off_map_expected", "next")
# Below this share more inputs of the same sort are hardly worth their cost.
_LITTLE = 0.05


@dataclass(frozen=True)
class ReportContent:
    """Hold all that a report renders.

    Args:
        result: what was measured.
        verdict: what a gate said, where one was asked.
        comparison: a baseline, first, beside this measurement, where one was given.
        about: by criterion, what it measures in a few words.
    """

    result: Results
    verdict: Verdict | None = None
    comparison: Comparison | None = None
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The suite and the model, as far as they have names."""
        names = [name for name in (self.result.suite, self.result.model) if name]
        return " on ".join(names) or "a suite"


@dataclass(frozen=True)
class Said:
    """Hold one statement: its state, its head, the rest, and the section it leads to."""

    state: str
    head: str
    rest: str = ""
    link: str = ""


@dataclass(frozen=True)
class Card:
    """Hold what stands on the card of one criterion; ``large`` are figures worth as much room as the value."""

    name: str
    about: str
    value: str
    large: tuple[tuple[str, str], ...]
    beside: tuple[str, ...]
    against: Said | None
    second_half: str | None
    curve: GrowthCurve | None
    reference: Reference | None


def headline(content: ReportContent) -> Said:
    """Say in one sentence whether the suite is fine, alarms before gates before remarks."""
    result, verdict = content.result, content.verdict
    alarms = () if result.sanity is None else result.sanity.alarms
    remarks = len(remarks_of(result))
    varied = "" if alarms else as_training(result)
    named = f"{remarks} remark{'s' if remarks != 1 else ''}" if remarks else "no remarks"
    if verdict is not None and not verdict.met:
        failed = sum(not check.fine for check in verdict.checks)
        rest = f"{failed} of {counted(len(verdict.checks), 'check')} failed."
        return Said(BAD, "This suite does not meet its gate.", f"{rest} {_alarmed(len(alarms))}".strip())
    if alarms and verdict is None:
        return Said(BAD, "Do not believe these figures yet.", _alarmed(len(alarms)), "sanity")
    if verdict is not None:
        waived = sum(check.fine and not check.met for check in verdict.checks)
        met = len(verdict.checks) - waived
        rest = f"{met} of {counted(len(verdict.checks), 'check')} {agreeing(met, 'is', 'are')} met"
        rest += f", {waived} waived." if waived else "."
        state = REMARK if waived or alarms else FINE
        rest = f"{varied} {rest} {_alarmed(len(alarms))}".strip()
        return Said(state, f"This suite meets its gate, with {named}.", rest)
    state = REMARK if remarks else FINE
    rest = f"{varied} No gate was set: the figures below are for you to judge.".strip()
    return Said(state, f"No alarm stands, with {named}.", rest)


def remarks_of(result: Results) -> list[str]:
    """Return what a person should bear in mind, in a few words each."""
    return [check.head for check in sanity_checks(result) if check.state == REMARK] + warnings(result)


def as_training(result: Results) -> str:
    """Say how varied the suite is beside training data, as far as anything tells."""
    said = []
    for name, figures in result.details.items():
        if "relative" in figures:
            error = f" (± {figures['relative_error']:.2f})" if "relative_error" in figures else ""
            said.append(f"By {name} it is {figures['relative']:.2f}{error} × as varied as training data.")
            break
    verdicts = [_against_training(result, name, one).verdict for name, one in result.references.items()]
    judged = [verdict for verdict in verdicts if verdict is not None]
    if judged:
        enough = sum(verdict != LESS for verdict in judged)
        criteria = f"{len(judged)} criteria" if len(judged) > 1 else "1 criterion"
        said.append(f"Under {enough} of {criteria} it shows no less than held-out training inputs.")
    return " ".join(said)


def _alarmed(alarms: int) -> str:
    if not alarms:
        return ""
    return "1 alarm stands: see below before any value." if alarms == 1 else f"{alarms} alarms stand: see them first."


def next_steps(content: ReportContent) -> list[Said]:
    """Return at most three things to do, the most urgent first."""
    result = content.result
    steps = []
    if result.sanity is not None:
        steps += [Said(BAD, f"Look into the alarm “{a.name}”", a.sentence, "sanity") for a in result.sanity.alarms]
        if result.sanity.never_seen:
            told = f"No input has class {as_ranges(result.sanity.never_seen, 8)}, which training data have."
            steps.append(Said(REMARK, "Collect the classes that are missing", told, "sanity"))
    if content.verdict is not None:
        failed = [check for check in content.verdict.checks if not check.fine and not check.name.startswith("alarm:")]
        steps += [Said(BAD, f"Mend {check.name}", f"{check.sentence}.", "verdict") for check in failed]
    if result.galleries:
        first = result.galleries[0]
        told = f"{len(first.items)} are shown, with what the model said."
        wrong = sum(None not in (one.label, one.prediction) and one.label != one.prediction for one in first.items)
        if wrong:
            told = f"The model is wrong on {wrong} of the {len(first.items)} that are shown, with what it said."
        steps.append(Said(FINE, f"Look at the inputs under “{first.title}”", told, "inputs"))
    steps += _growth_step(result)
    dead = [(row.dead_count or 0, row.layer, row.neurons) for row in result.neurons if row.dead_count]
    if dead:
        count, layer, neurons = max(dead)
        told = (
            f"{count} of its {counted(neurons, 'neuron')} {agreeing(count, 'was', 'were')} never "
            f"above 0 for any of these inputs."
        )
        steps.append(Said(REMARK, f"Look at layer {layer}", told, "layers"))
    return steps[:_STEPS]


def _growth_step(result: Results) -> list[Said]:
    """Say whether more of the same would help, by the criterion that it would help most."""
    gains = [
        (curve.forecast[0][1] / curve.values[-1] - 1, name, curve.forecast[0][0])
        for name, curve in result.growth.items()
        if curve.forecast and curve.values and curve.values[-1] > 0 and math.isfinite(curve.forecast[0][1])
    ]
    if not gains:
        return []
    gain, name, size = max(gains)
    others = "; estimates for other criteria are lower" if len(gains) > 1 else ""
    told = f"At {counted(size, 'input')} {name} would be about {show_share(max(0.0, gain))} higher{others}."
    head = "Add other inputs, not more of these" if gain < _LITTLE else "Add more inputs of this kind"
    return [Said(REMARK, head, told, "growth")]


def sanity_checks(result: Results) -> list[Said]:
    """Say of everything that comes before the values whether it is fine; alarms first."""
    sanity = result.sanity
    if sanity is None:
        return []
    alarmed: set[str] = {alarm.name for alarm in sanity.alarms}
    said = [Said(BAD, f"Alarm “{alarm.name}”", alarm.sentence) for alarm in sanity.alarms]
    few = "Few: all figures scatter widely." if sanity.few else ""
    said.append(Said(REMARK if few else FINE, counted(sanity.inputs, "input"), few))
    if sanity.accuracy is not None:
        known = sanity.accuracy_in_training
        beside = "" if known is None else f"; {show_share(known)} on training data"
        of = f"Of {counted(sanity.judged, 'input')} with a label{beside}."
        state = BAD if "accuracy" in alarmed else FINE
        said.append(Said(state, f"{show_share(sanity.accuracy)} of the answers are right", of))
    if sanity.classes is not None:
        said.append(_classes(sanity, alarmed, _class_sizes(result)))
    if sanity.unlike is not None:
        known = sanity.unlike_expected
        beside = "" if known is None else f"{show_share(known)} is expected of fresh training inputs."
        state = BAD if "unlike" in alarmed else FINE
        said.append(Said(state, f"{show_share(sanity.unlike)} of the inputs are unlike training data", beside))
    if scale := show_scale(sanity.mean, sanity.deviation):
        usual = show_scale(sanity.mean_in_training, sanity.deviation_in_training)
        state = BAD if alarmed & {"scale", "channels"} else FINE
        told = "Mean ± deviation" + (f"; of training data {usual}." if usual else ".")
        said.append(Said(state, f"Numbers in the inputs are {scale}", told))
    if sanity.duplicates is not None:
        said.append(_duplicates(sanity, alarmed))
    return said


def _duplicates(sanity: Sanity, alarmed: set[str]) -> Said:
    parts = []
    for count, one in ((sanity.duplicates, "duplicate"), (sanity.near_duplicates, "near duplicate")):
        if count:
            parts.append(f"{count:,} {one}{'s' if count != 1 else ''}")
    state = BAD if "duplicates" in alarmed else REMARK if parts else FINE
    told = "Near duplicates show the same kind as another input in every layer." if sanity.near_duplicates else ""
    return Said(state, ", ".join(parts) or "No duplicates", told)


def _class_sizes(result: Results) -> str:
    """Say which class has fewest and which most inputs, where the suite was sliced by class."""
    rows = next((table.rows for table in result.slices if table.column == CLASS), ())
    if len(rows) < 2:
        return ""
    least, most = min(rows, key=lambda row: row.inputs), max(rows, key=lambda row: row.inputs)
    return (
        f"The smallest, {least.slice}, has {counted(least.inputs, 'input')}, the largest, "
        f"{most.slice}, {most.inputs:,}."
    )


def _classes(sanity: Sanity, alarmed: set[str], sizes: str) -> Said:
    known, by = sanity.classes_in_training, "By decision of the model." if sanity.by == "decision" else ""
    by = f"{by} {sizes}".strip()
    if known is None:
        seen = sanity.classes or 0
        return Said(FINE, f"{counted(seen, 'class')} {agreeing(seen, 'is', 'are')} seen", by)
    if not sanity.never_seen:
        return Said(FINE, "The one class is seen" if known == 1 else f"All {known:,} classes are seen", by)
    told = f"Never seen: {as_ranges(sanity.never_seen, 8)}. {by}".strip()
    seen = known - len(sanity.never_seen)
    head = f"{seen:,} of {counted(known, 'class')} {agreeing(seen, 'is', 'are')} seen"
    return Said(BAD if "classes" in alarmed else REMARK, head, told)


def warnings(result: Results) -> list[str]:
    """Return what the measurement has to say beside its figures: findings, notes, parameters in no measured layer."""
    unseen = [f"{result.unmeasured}."] if result.unmeasured is not None and result.unmeasured.noteworthy else []
    return [*result.findings, *result.notes, *unseen]


def cards(content: ReportContent) -> list[Card]:
    """Return a card for every criterion."""
    result = content.result
    increase = result.increase
    made = []
    for name, value in result.values.items():
        figures = result.details.get(name, {})
        large = _large(figures)
        left = {key: number for key, number in figures.items() if not large or key not in _LARGE}
        beside = [part for part in figures_in_words(left).split(", ") if part]
        if increase is not None:
            beside.insert(0, f"{show_value(increase[name])} of it added by this suite")
        curve, reference = result.growth.get(name), result.references.get(name)
        half = None if curve is None else curve.second_half
        made.append(
            Card(
                name,
                content.about.get(name, ""),
                value_with_error(value, figures),
                large,
                tuple(beside),
                None if reference is None else _against(result, name, reference),
                None if half is None else share_added(half),
                curve if curve is not None and len(curve.sizes) > 1 else None,
                reference,
            )
        )
    return made


def _large(figures: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    """Return the figures by which people read a criterion that tells them itself what training data show."""
    if "relative" not in figures:
        return ()
    error = f" ± {figures['relative_error']:.2f}" if "relative_error" in figures else ""
    found = [(f"{figures['relative']:.2f}{error}", "× as varied as training data")]
    if "off_map" in figures:
        known = figures.get("off_map_expected")
        beside = "" if known is None else f", {show_share(known)} expected"
        found.append((show_share(figures["off_map"]), f"off the map of training data{beside}"))
    if "next" in figures:
        found.append((show_share(figures["next"]), "chance that the next input shows a new kind"))
    return tuple(found)


def share_added(half: float) -> str:
    """Format what the second half of a suite added, as a share; it may have lowered the value.

    >>> share_added(0.25), share_added(-0.02)
    ('25 %', '−2.0 %')
    """
    return show_share(half) if half >= 0 else f"−{show_share(-half)}"


def _against_training(result: Results, name: str, reference: Reference) -> Against:
    error = find_figure(result, name).error
    return against_reference(result.values[name], error, result.inputs, reference, show_value)


def _against(result: Results, name: str, reference: Reference) -> Said:
    """Say what a value is beside that of held-out training inputs."""
    found = _against_training(result, name, reference)
    if found.verdict is None:
        return Said(FINE, "", found.told)
    sign = {AS_VARIED: "=", MORE: ">", LESS: "<"}[found.verdict]
    return Said(FINE if found.verdict == AS_VARIED else REMARK, f"{sign} {found.verdict}", found.told)

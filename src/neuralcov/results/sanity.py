"""Is a measurement sane? Figures that come before any criterion, and alarms in plain words.

A suite that somebody forgot to scale has the best coverage of all under most criteria, and half of the classes
missing is next to invisible. So accuracy, classes, inputs unlike training data, their scale and duplicates are looked
at first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from neuralcov.core.counted import agreeing, counted
from neuralcov.results.scale import ChannelFacts, better_order, comparable, in_words, other_scale, show_scale

# An alarm needs so many inputs.
LEAST_INPUTS = 20
# Of fewer inputs than these it is said that they are few.
FEW_INPUTS = 100
# By how much the share of inputs off the map must exceed what is expected: in the middle layer, and in any layer.
_OFF_MAP, _OFF_MAP_WORST = 0.2, 0.5
_ERRORS = 4.0
_DUPLICATES, _NEAR_DUPLICATES = 0.1, 0.5
# Copies of half of the inputs or more have at most so much of the variety of as many training inputs.
_VARIED = 0.8
# How far from guessing to always being right an accuracy must be, and which part of the accuracy in training.
_ABOVE_GUESSING, _OF_TRAINING = 0.25, 0.5
# Chance that so many classes are missing by accident.
_BY_ACCIDENT = 1e-3
_CLASSES_NAMED = 10
# Of the numbers in inputs.
_DIGITS = 5


AlarmName = Literal["accuracy", "channels", "classes", "duplicates", "moving calibration", "scale", "unlike"]
ALARMS: tuple[str, ...] = get_args(AlarmName)
"""What gates call the alarms there are."""


@dataclass(frozen=True)
class Alarm:
    """Say why figures below must not be believed; ``name`` is what a gate calls it."""

    name: AlarmName
    sentence: str


@dataclass(frozen=True)
class SuiteFacts:
    """Hold what was counted of a suite, and of training data where these are known.

    Args:
        inputs: how many there are.
        judged: how many have both a label and a class that the model chose.
        right: for how many of these the two agree.
        classes: inputs by class: by label where there are labels, else by what the model chose.
        labelled: whether by label.
        training: the same of training data, ``None`` where that is not known.
        duplicates: share of inputs whose content is that of another, ``None`` where that is not known.
        alike: share of inputs that behave, in every layer, as another does, duplicates included; ``None`` likewise.
        moving: whether the weights changed while training data were learnt from.
        channels: the numbers in the inputs, ``None`` where these are not known or have no scale, as tokens.
    """

    inputs: int
    judged: int = 0
    right: int = 0
    classes: Mapping[int, int] = field(default_factory=dict)
    labelled: bool = False
    training: SuiteFacts | None = None
    duplicates: float | None = None
    alike: float | None = None
    moving: bool = False
    channels: ChannelFacts | None = None

    @property
    def accuracy(self) -> float | None:
        """The share of right answers, ``None`` where labels or decisions are not known."""
        return self.right / self.judged if self.judged else None


@dataclass(frozen=True)
class Sanity:
    """Hold the figures that come first; ``None`` stands for what is not known.

    Args:
        inputs: how many there are.
        judged: how many have both a label and a class that the model chose.
        accuracy: share of right answers among these.
        accuracy_in_training: the same for training data.
        classes: how many classes the inputs have.
        classes_in_training: how many classes training data have.
        never_seen: classes of training data that no input has.
        by: what classes are read off: ``"label"``, or ``"decision"`` of the model.
        unlike: share of inputs unlike training data: off the map of LCC.
        unlike_expected: what fresh training inputs would have.
        unlike_worst: the share in the layer where it is farthest above what is expected.
        unlike_worst_expected: what is expected there.
        duplicates: how many inputs repeat the content of another.
        near_duplicates: how many more behave, in every layer, as another does.
        mean: the mean of the numbers in the inputs, where these have a scale.
        deviation: their standard deviation about the mean of their channel.
        mean_in_training: the same of training data.
        deviation_in_training: the same of training data.
        alarms: what is wrong, in plain words.
    """

    inputs: int
    judged: int = 0
    accuracy: float | None = None
    accuracy_in_training: float | None = None
    classes: int | None = None
    classes_in_training: int | None = None
    never_seen: tuple[int, ...] = ()
    by: str | None = None
    unlike: float | None = None
    unlike_expected: float | None = None
    unlike_worst: float | None = None
    unlike_worst_expected: float | None = None
    duplicates: int | None = None
    near_duplicates: int | None = None
    mean: float | None = None
    deviation: float | None = None
    mean_in_training: float | None = None
    deviation_in_training: float | None = None
    alarms: tuple[Alarm, ...] = ()

    @property
    def few(self) -> bool:
        """Whether there are so few inputs that all figures scatter widely."""
        return self.inputs < FEW_INPUTS

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


_MOVING = Alarm(
    "moving calibration",
    "calibration learnt from passes on weights that changed meanwhile: calibrate again with the weights as they are",
)


def judge_sanity(facts: SuiteFacts, details: Mapping[str, Mapping[str, float]]) -> Sanity:
    """Return the figures that come first, and alarms.

    Args:
        facts: what was counted.
        details: figures beside the values, by criterion; the first that has ``off_map`` tells what is unlike training.

    >>> judge_sanity(SuiteFacts(300, 300, 290, {0: 150, 1: 150}, labelled=True), {}).alarms
    ()
    >>> judge_sanity(SuiteFacts(300), {"LCC": {"off_map": 0.97, "off_map_expected": 0.02}}).alarms[0].name
    'unlike'
    """
    training = facts.training
    known = {} if training is None or training.labelled != facts.labelled else training.classes
    off_map: Mapping[str, float] = next((figures for figures in details.values() if "off_map" in figures), {})
    scale, usual = facts.channels, None if training is None else training.channels
    alike = None if facts.alike is None else max(0.0, facts.alike - (facts.duplicates or 0.0))
    found = Sanity(
        inputs=facts.inputs,
        judged=facts.judged,
        accuracy=facts.accuracy,
        accuracy_in_training=None if training is None else training.accuracy,
        classes=len(facts.classes) or None,
        classes_in_training=len(known) or None,
        never_seen=tuple(sorted(set(known) - set(facts.classes))) if facts.classes else (),
        by=("label" if facts.labelled else "decision") if facts.classes else None,
        unlike=off_map.get("off_map"),
        unlike_expected=off_map.get("off_map_expected"),
        unlike_worst=off_map.get("off_map_worst"),
        unlike_worst_expected=off_map.get("off_map_worst_expected"),
        duplicates=None if facts.duplicates is None else round(facts.duplicates * facts.inputs),
        near_duplicates=None if alike is None else round(alike * facts.inputs),
        mean=_told(scale, "mean"),
        deviation=_told(scale, "deviation"),
        mean_in_training=_told(usual, "mean"),
        deviation_in_training=_told(usual, "deviation"),
    )
    said = [_MOVING] if facts.moving else []
    if facts.inputs >= LEAST_INPUTS:
        relative = off_map.get("relative")
        classes = _classes(found, known)
        prepared = _scale(scale, usual, missing=classes is not None)
        judged = (_unlike(found), prepared, _accuracy(found, facts), classes, _duplicates(found, relative))
        said += [alarm for alarm in judged if alarm is not None]
    return replace(found, alarms=tuple(said))


def _unlike(found: Sanity) -> Alarm | None:
    middle = _above(found.unlike, found.unlike_expected, found.inputs, _OFF_MAP)
    if middle is not None:
        return Alarm("unlike", f"{middle} of these inputs are unlike anything in training: is the scaling the same?")
    worst = _above(found.unlike_worst, found.unlike_worst_expected, found.inputs, _OFF_MAP_WORST)
    if worst is not None:
        return Alarm(
            "unlike",
            f"in one layer {worst} of these inputs are unlike anything in training: are they prepared in the same way?",
        )
    return None


def _above(share: float | None, expected: float | None, inputs: int, by: float) -> str | None:
    """Return a share in per cent if it is far above what is expected, beyond what so many inputs scatter."""
    if share is None:
        return None
    usual = expected or 0.0
    scatter = math.sqrt(max(usual * (1 - usual), 1 / inputs) / inputs)
    return f"{100 * share:.0f} %" if share - usual > max(by, _ERRORS * scatter) else None


def _told(channels: ChannelFacts | None, name: str) -> float | None:
    """Return a figure of the numbers in inputs, without digits that depend on the order of a sum."""
    if channels is None:
        return None
    size = math.hypot(channels.mean, channels.deviation)
    digits = _DIGITS - math.ceil(math.log10(size)) if math.isfinite(size) and size > 0 else 0
    # Added, 0 makes -0.0 into +0.0.
    number: float = getattr(channels, name)
    return round(number, digits) + 0.0


def _scale(suite: ChannelFacts | None, training: ChannelFacts | None, *, missing: bool) -> Alarm | None:
    """Tell of inputs that are scaled otherwise than training data, or whose colours are in another order.

    Where classes are missing, others may have colours of their own.
    """
    if suite is None or training is None or not comparable(suite, training):
        return None
    if other_scale(suite, training):
        ours, theirs = (show_scale(each.mean, each.deviation) for each in (suite, training))
        said = f"numbers in the inputs are {ours}, in training data {theirs}"
        return Alarm("scale", f"{said}: is the scaling the same?")
    order = None if missing else better_order(suite, training)
    if order is None:
        return None
    said = f"the channels fit training data better in the order {in_words(order)}"
    return Alarm("channels", f"{said}: are colours read in the same order?")


def _accuracy(found: Sanity, facts: SuiteFacts) -> Alarm | None:
    if found.accuracy is None or found.judged < LEAST_INPUTS:
        return None
    right = f"{100 * found.accuracy:.0f} % of the answers are right"
    known = set(facts.classes) | (set() if facts.training is None else set(facts.training.classes))
    guessing = 1 / max(2, len(known))
    if found.accuracy < guessing + _ABOVE_GUESSING * (1 - guessing):
        said = f"{right}, where guessing among {counted(max(2, len(known)), 'class')} gives {100 * guessing:.0f} %"
        return Alarm("accuracy", f"{said}: are these the right weights and labels?")
    before = found.accuracy_in_training
    if before is not None and found.accuracy < _OF_TRAINING * before:
        said = f"{right}, of training data {100 * before:.0f} %"
        return Alarm("accuracy", f"{said}: are inputs, labels and weights those that belong together?")
    return None


def _classes(found: Sanity, known: Mapping[int, int]) -> Alarm | None:
    """Tell of classes that training data have and no input has, unless so many may be missing by accident.

    With the shares q of training data, classes missing from n inputs are about Poisson with mean Σ(1 − q)ⁿ.
    """
    missing = len(found.never_seen)
    if not missing:
        return None
    total = sum(known.values())
    expected = sum((1 - count / total) ** found.inputs for count in known.values())
    if poisson_tail(missing, expected) > _BY_ACCIDENT:
        return None
    named = ", ".join(map(str, found.never_seen[:_CLASSES_NAMED])) + (", …" if missing > _CLASSES_NAMED else "")
    occur = agreeing(missing, "occurs", "occur")
    said = (
        f"{missing} of {counted(len(known), 'class')} never {occur} ({named}), and training data "
        f"have {agreeing(missing, 'it', 'them')}"
    )
    return Alarm("classes", f"{said}: is part of the suite missing?")


def _duplicates(found: Sanity, relative: float | None) -> Alarm | None:
    """Tell of copies. A small network cannot tell many inputs apart: where these are varied, they are no copies."""
    if found.duplicates is not None and found.duplicates > _DUPLICATES * found.inputs:
        share = f"{100 * found.duplicates / found.inputs:.0f} %"
        return Alarm("duplicates", f"{share} of the inputs repeat another one: was something added twice?")
    near = (found.near_duplicates or 0) + (found.duplicates or 0)
    varied = relative is not None and relative >= _VARIED
    if near > _NEAR_DUPLICATES * found.inputs and not varied:
        share = f"{100 * near / found.inputs:.0f} %"
        return Alarm("duplicates", f"{share} of the inputs behave in every layer as another one does: are they copies?")
    return None


def poisson_tail(least: int, mean: float) -> float:
    """Return the chance that a Poisson number is ``least`` or more.

    >>> poisson_tail(0, 3.0), round(poisson_tail(1, 0.1), 4), poisson_tail(1, 0.0)
    (1.0, 0.0952, 0.0)
    """
    if least <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    if mean > 500:
        # Below, terms of the sum would be too small for a float.
        return 0.5 * math.erfc((least - 0.5 - mean) / math.sqrt(2 * mean))
    term = total = math.exp(-mean)
    for count in range(1, least):
        term *= mean / count
        total += term
    return max(0.0, 1 - total)

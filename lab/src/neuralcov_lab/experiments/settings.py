"""Every criterion with every setting of the paper's tables, and how settings share what calibration learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neuralcov import CC, DSC, KMNC, LCC, LSC, LVC, MDSC, NBC, NC, NLC, NPC, SNAC, SS, TKNC, TKNP, Criterion

AnyCriterion = Criterion[Any]


def table_settings(distances: Sequence[float] = (10, 20, 50), by: str = "predicted") -> list[AnyCriterion]:
    """Return all settings of the paper's tables, SS, both rules of NLC, and LVC; without NPC for its relevance.

    LCC came later and is measured beside these: ``later_settings``.

    Args:
        distances: of CC, which go by the data: the paper takes other ones for generative models.
        by: what surprise criteria condition on.
    """
    return [
        *(NC(threshold) for threshold in (0.25, 0.5, 0.75)),
        *(KMNC(sections) for sections in (10, 100, 1000)),
        NBC(),
        SNAC(),
        *(TKNC(k) for k in (1, 10, 50)),
        *(TKNP(k) for k in (1, 10, 50)),
        SS(),
        *(CC(distance) for distance in distances),
        *(LSC(bucket, by=by) for bucket in (1, 10, 100)),
        *(DSC(bucket, by=by) for bucket in (0.01, 0.1, 1)),
        *(MDSC(bucket, by=by) for bucket in (1, 10, 100)),
        NLC(),
        NLC(rule="all"),
        LVC(),
    ]


def later_settings() -> list[AnyCriterion]:
    """Return the settings of what came after the others were measured: LCC, with each way to bring layers together."""
    return [LCC(), LCC(over="mean"), LCC(over="trimmed")]


def check_settings() -> list[AnyCriterion]:
    """Return what is measured again beside later criteria, to see that suites and networks are those of before.

    SNAC feels every layer's outermost outputs, so that few changes of a suite leave its value alone.
    """
    return [SNAC()]


def panel_settings(
    companion: bool, distances: Sequence[float] = (10, 20, 50), by: str = "predicted"
) -> list[AnyCriterion]:
    """Return the settings that suites are measured under, or with ``companion`` those measured beside these later."""
    return [*later_settings(), *check_settings()] if companion else table_settings(distances, by)


def single_settings() -> list[AnyCriterion]:
    """Return one setting of each criterion, the paper's choice where it uses one (faults, time)."""
    return [
        NC(0.75),
        KMNC(100),
        NBC(),
        SNAC(),
        TKNC(10),
        TKNP(50),
        SS(),
        CC(10),
        LSC(10),
        DSC(0.1),
        MDSC(10),
        NPC(),
        NLC(),
        NLC(rule="all"),
        LVC(),
        LCC(),
    ]


def fuzz_settings() -> list[AnyCriterion]:
    """Return one setting of each criterion, the paper's for fuzzing; both rules of NLC, and LCC as guides use it."""
    others: dict[str, AnyCriterion] = {"NC(0.75)": NC(0.0), "LCC": LCC(over="mean")}
    return [others.get(criterion.name, criterion) for criterion in single_settings()]


def path_settings() -> list[AnyCriterion]:
    """NPC by likeness of paths, at two numbers of abstract paths."""
    return [NPC(), NPC(clusters=1)]


def named(settings: Sequence[AnyCriterion], name: str) -> AnyCriterion:
    """Return the setting of that name."""
    return next(criterion for criterion in settings if criterion.name == name)


def representatives(settings: Sequence[AnyCriterion]) -> list[AnyCriterion]:
    """Return the first setting of each criterion: what one of them learns, the others can use."""
    first: dict[type[AnyCriterion], AnyCriterion] = {}
    for criterion in settings:
        first.setdefault(type(criterion), criterion)
    return list(first.values())


def taught(settings: Sequence[AnyCriterion], fitted: Sequence[AnyCriterion]) -> list[AnyCriterion]:
    """Return the settings with what the calibrated representatives of their criterion learnt.

    Settings of one criterion so share one object, and a batch's surprise, say, is computed once for all buckets.
    """
    learnt = {type(criterion): criterion.learnt for criterion in fitted}
    return [replace(criterion, learnt=learnt[type(criterion)]) for criterion in settings]

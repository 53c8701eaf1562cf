"""Figures of a measurement by name: ``LCC.relative``, ``NC(0.75)``, ``accuracy``, each with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass

from neuralcov.core.errors import InputError
from neuralcov.results.results import Results

# Relative to their own calibration, so that they mean the same on another model; these do not depend on size either.
_RELATIVE = frozenset({"relative", "off_map", "new_decisions", "beyond"})
# Relative to calibration too, and falling as a suite grows.
_RELATIVE_TO_SIZE = frozenset({"next"})
_OF_SUITE = ("accuracy", "inputs", "classes", "unlike", "duplicates", "near_duplicates")
_ERRORS = ("error", "standard error")


@dataclass(frozen=True)
class Figure:
    """Hold one number of a measurement.

    Args:
        name: what it is called.
        value: the number, ``None`` where this measurement has none.
        error: its standard error, ``None`` where none is known.
        relative: whether it is relative to its own calibration, and means the same on another model.
        sized: whether it depends on the number of inputs.
    """

    name: str
    value: float | None
    error: float | None = None
    relative: bool = False
    sized: bool = False


def find_figure(result: Results, name: str) -> Figure:
    """Return a figure by its name; refuse one that the measurement does not have.

    A criterion's name gives its value; what follows the last dot, a figure beside it. Of the suite itself there are
    ``accuracy``, ``inputs``, ``classes``, ``unlike``, ``duplicates`` and ``near_duplicates``.
    """
    if name in _OF_SUITE:
        return _of_suite(result, name)
    if name in result.values:
        return _value(result, name)
    criterion, dot, figure = name.rpartition(".")
    if dot and criterion in result.values and figure in result.details.get(criterion, {}):
        return _detail(result, criterion, figure)
    there = [found.name for found in all_figures(result)]
    raise InputError(f"{name!r} is no figure of {result.suite or 'this measurement'}: it has {', '.join(there)}")


def all_figures(result: Results) -> list[Figure]:
    """Return every figure that two measurements may be compared by."""
    # What is unlike training is a criterion's figure already.
    found = [_of_suite(result, name) for name in _OF_SUITE if name != "unlike"]
    for criterion in result.values:
        names = [name for name in result.details.get(criterion, {}) if not _beside(name)]
        found += [_value(result, criterion), *(_detail(result, criterion, name) for name in names)]
    return [figure for figure in found if figure.value is not None]


def _beside(name: str) -> bool:
    """Return whether a figure only says how sure another is, or what was expected of it."""
    return name.endswith(("error", "expected")) or name.startswith(("expected", "off_map_worst"))


def _value(result: Results, criterion: str) -> Figure:
    details = result.details.get(criterion, {})
    error = next((details[name] for name in _ERRORS if name in details), None)
    relative = "relative=True" in criterion
    return Figure(criterion, result.values[criterion], error, relative=relative, sized=True)


def _detail(result: Results, criterion: str, name: str) -> Figure:
    details = result.details[criterion]
    value, error = details[name], details.get(f"{name}_error")
    if name in ("off_map", "beyond"):
        error = _share_error(value, result.inputs)
    return Figure(
        f"{criterion}.{name}",
        value,
        error,
        relative=name in _RELATIVE | _RELATIVE_TO_SIZE,
        sized=name not in _RELATIVE,
    )


def _of_suite(result: Results, name: str) -> Figure:
    if name == "inputs":
        return Figure(name, result.inputs, 0.0, relative=True, sized=True)
    sanity = result.sanity
    value = None if sanity is None else getattr(sanity, name)
    error = None
    if sanity is not None and value is not None and name in ("accuracy", "unlike"):
        error = _share_error(value, sanity.judged if name == "accuracy" else result.inputs)
    return Figure(name, value, error, relative=True, sized=name not in ("accuracy", "unlike"))


def _share_error(share: float, inputs: int) -> float:
    """Return the standard error of a share of so many inputs; that of one input for a share of 0 or 1."""
    return math.sqrt(max(share * (1 - share), 1 / inputs) / inputs) if inputs else math.nan

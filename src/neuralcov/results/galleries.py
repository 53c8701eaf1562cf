"""Which inputs a report shows and why, and how few of them would do: pure functions of a table of inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralcov.core.counted import agreeing, counted
from neuralcov.results.input_table import InputTable
from neuralcov.results.sections import FewerInputs, Gallery, GalleryItem

# Five reasons, so that there are at most 60 pictures.
_SHOWN = 12
TEXT_COLUMNS = ("text", "sentence", "question")
_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
_FIRST, _SCORE, _ALIKE = ".first", ".score", ".alike"


@dataclass(frozen=True)
class View:
    """Hold what an input looks like: a picture (PNG) or a text."""

    picture: bytes | None = None
    text: str | None = None


@dataclass(frozen=True)
class _Chosen:
    """Hold rows that are shown for one reason, each with why."""

    title: str
    explanation: str
    rows: tuple[tuple[int, str], ...]


def rows_to_show(table: InputTable, nearest: Mapping[int, str]) -> list[int]:
    """Return the rows that some gallery shows, each once."""
    return list(dict.fromkeys(row for chosen in _choose(table, nearest) for row, _ in chosen.rows))


def surprising_rows(table: InputTable) -> list[int]:
    """Return the rows of the most surprising inputs, the most surprising first."""
    chosen = _surprising(table)
    return [] if chosen is None else [row for row, _ in chosen.rows]


def make_galleries(table: InputTable, views: Mapping[int, View], nearest: Mapping[int, str]) -> tuple[Gallery, ...]:
    """Return the inputs to look at, by why.

    Args:
        table: of all inputs.
        views: what those rows look like that ``rows_to_show`` names, as far as that is known.
        nearest: rows that come nearest to what is uncovered, each with what that is.
    """
    return tuple(
        Gallery(chosen.title, chosen.explanation, tuple(_item(table, views, row, why) for row, why in chosen.rows))
        for chosen in _choose(table, nearest)
    )


def _item(table: InputTable, views: Mapping[int, View], row: int, why: str) -> GalleryItem:
    view = views.get(row, View())
    texts = (table.columns[name][row] for name in TEXT_COLUMNS if name in table.columns)
    text = next((some for some in texts if isinstance(some, str)), view.text)
    label, prediction = (_plain(table, name, row) for name in ("label", "prediction"))
    return GalleryItem(str(table["id"][row]), why, label, prediction, view.picture, text)


def _plain(table: InputTable, column: str, row: int) -> str | None:
    value = table.columns[column][row] if column in table.columns else None
    return None if value is None else str(int(value))


def _choose(table: InputTable, nearest: Mapping[int, str]) -> Iterator[_Chosen]:
    found = [_surprising(table), _alike(table), *_adding(table)]
    if nearest:
        told = "They gave the highest output of neurons that no input covers: vary these, or collect more like them."
        found.append(_Chosen("Nearest to what is uncovered", told, tuple(nearest.items())[:_SHOWN]))
    return (chosen for chosen in found if chosen is not None and chosen.rows)


def _surprising(table: InputTable) -> _Chosen | None:
    """Choose the inputs with the highest scores of the first criterion that has scores."""
    for name in _columns(table, _SCORE):
        scores = _numbers(table[name])
        known = np.flatnonzero(np.isfinite(scores))
        if len(known) < 2:
            continue
        order = known[np.argsort(-scores[known], kind="stable")][:_SHOWN]
        criterion, middle = name.removesuffix(_SCORE), float(np.median(scores[known]))
        short = criterion.partition("(")[0]
        told = f"The least like training data of their class by {criterion}; its median over the suite is {middle:.3g}."
        return _Chosen("Most surprising", told, tuple((int(row), f"{short} {scores[row]:.3g}") for row in order))
    return None


def _alike(table: InputTable) -> _Chosen | None:
    """Choose pairs that have the same content, or are of one kind in every layer."""
    for name, words in (("key", "the same content as"), *((n, "in every layer like") for n in _columns(table, _ALIKE))):
        first: dict[str, int] = {}
        pairs = []
        for row, word in enumerate(table[name] if name in table.columns else ()):
            if word is None:
                continue
            if word in first:
                pairs.append((first[word], row))
            else:
                first[word] = row
        if not pairs:
            continue
        # Those about which the model changes its mind are worth a look first.
        said = table.columns.get("prediction")
        if said is not None:
            pairs.sort(key=lambda pair: said[pair[0]] == said[pair[1]])
        rows = []
        for a, b in pairs[: _SHOWN // 2]:
            rows += [(a, f"{words} {table['id'][b]}"), (b, f"{words} {table['id'][a]}")]
        alike = counted(len(pairs), "input")
        if name == "key":
            told = f"{alike} {agreeing(len(pairs), 'is', 'are')} in the suite twice."
        else:
            told = f"{alike} {agreeing(len(pairs), 'shows', 'show')} nothing in any layer that another does not."
        title = "Duplicates" if name == "key" else "Near duplicates"
        return _Chosen(title, f"{told} The two of a pair stand side by side.", tuple(dict(rows).items()))
    return None


def _adding(table: InputTable) -> Iterator[_Chosen]:
    """Choose the inputs that were the first to show most, and some that were the first to show nothing."""
    shown = {name.removesuffix(_FIRST): _numbers(table[name]) for name in _columns(table, _FIRST)}
    shown = {name: np.nan_to_num(counts) for name, counts in shown.items() if np.nansum(counts) > 0}
    if not shown:
        return
    # The criterion with most to show tells inputs apart best.
    name, counts = max(shown.items(), key=lambda item: item[1].sum())
    order = [int(row) for row in np.argsort(-counts, kind="stable")[:_SHOWN] if counts[row] > 0]
    told = (
        f"They were the first to show most of what {name} counts, {int(counts.sum()):,} in all; inputs that come early "
        "have it easier."
    )
    yield _Chosen("Adding most", told, tuple((row, f"{int(counts[row]):,} shown first") for row in order))
    nothing = np.flatnonzero(sum(shown.values()) == 0)
    show = agreeing(len(nothing), "shows", "show")
    told = f"{len(nothing):,} of {counted(len(table), 'input')} {show} nothing that those before had not."
    yield _Chosen("Adding nothing", told, tuple((int(row), "adds nothing") for row in nothing[:_SHOWN]))


def fewer_inputs(table: InputTable, preferred: Iterable[str]) -> FewerInputs | None:
    """Return how few inputs keep a share of what a criterion counts, chosen by what each was the first to show.

    No two inputs were the first to show the same, so that some inputs cover at least what they were the first to show:
    the shares are a bound that holds, and a choice made for this may keep more.

    Args:
        table: of all inputs.
        preferred: criteria whose value is the share of cells covered, the one to use first.
    """
    there = [name.removesuffix(_FIRST) for name in _columns(table, _FIRST)]
    chosen = next((name for name in preferred if name in there), None)
    if chosen is None:
        return None
    counts = np.nan_to_num(_numbers(table[chosen + _FIRST]))
    total = counts.sum()
    if not total > 0:
        return None
    order = np.argsort(-counts, kind="stable")
    kept = np.cumsum(counts[order]) / total
    sizes = list(dict.fromkeys(int(np.searchsorted(kept, share - 1e-12)) + 1 for share in _SHARES))
    if sizes[-1] < len(table):
        sizes.append(len(table))
    mistakes = _mistakes(table)
    found = None
    if mistakes is not None and mistakes.any():
        caught = np.cumsum(mistakes[order]) / mistakes.sum()
        found = tuple(float(caught[size - 1]) for size in sizes)
    return FewerInputs(chosen, tuple(sizes), tuple(float(min(1.0, kept[size - 1])) for size in sizes), found)


def wrong_inputs(table: InputTable) -> list[bool] | None:
    """Return whether the model is wrong about each input; ``None`` where labels or predictions are not known."""
    found = _mistakes(table)
    return None if found is None else [bool(one) for one in found]


def _mistakes(table: InputTable) -> np.ndarray | None:
    if "label" not in table.columns or "prediction" not in table.columns:
        return None
    label, said = _numbers(table["label"]), _numbers(table["prediction"])
    known = np.isfinite(label) & np.isfinite(said)
    return known & (label != said) if known.any() else None


def _columns(table: InputTable, ending: str) -> list[str]:
    return [name for name in table.columns if name.endswith(ending)]


def _numbers(values: Sequence[Any]) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values.astype(np.float64)
    return np.array([math.nan if value is None else float(value) for value in values])

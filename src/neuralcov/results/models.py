"""One suite on two networks: which inputs they decide otherwise, and which they no longer put together.

Both tables of inputs are matched by content key. Kinds have no names that two networks share, so that groupings are
compared: which pairs of inputs are of one kind on both, on one only, or on none. Their agreement is the adjusted Rand
index (Hubert and Arabie, 1985): 1 for the same grouping, 0 for what chance would give.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from neuralcov.core.counted import agreeing, counted
from neuralcov.core.errors import InputError, MismatchError
from neuralcov.results.compare import ERRORS_APART
from neuralcov.results.input_table import InputTable

SCHEMA = 1
GROUPINGS = (".kind", ".alike")
# Inputs that a list names.
_LISTED = 20


@dataclass(frozen=True)
class Decision:
    """Hold an input that both networks decide otherwise; ``label`` is ``None`` where it is not known."""

    id: Any
    label: Any
    first: Any
    second: Any


@dataclass(frozen=True)
class Moved:
    """Hold an input that has other companions in its kind: how many on the first, on the second, and on both."""

    id: Any
    first: int
    second: int
    common: int


@dataclass(frozen=True)
class Grouping:
    """Hold how far two groupings of the same inputs agree.

    Args:
        column: of the tables.
        inputs: how many have a kind in both.
        groups: how many kinds they are of in the first and in the second.
        pairs: of inputs that are of one kind in both, in the first only, and in the second only.
        agreement: the adjusted Rand index.
        changed: how many inputs have other companions.
        moved: those of them that have lost and won the largest share of their companions.
    """

    column: str
    inputs: int
    groups: tuple[int, int]
    pairs: tuple[int, int, int]
    agreement: float
    changed: int
    moved: tuple[Moved, ...] = ()


@dataclass(frozen=True)
class Answers:
    """Hold how many labelled inputs both networks, one or none of them decides rightly."""

    both: int
    first_only: int
    second_only: int
    neither: int

    @property
    def inputs(self) -> int:
        """How many inputs have a label and a decision on both."""
        return self.both + self.first_only + self.second_only + self.neither

    @property
    def accuracy(self) -> tuple[float, float]:
        """The share of right answers of each."""
        return (self.both + self.first_only) / self.inputs, (self.both + self.second_only) / self.inputs

    @property
    def error(self) -> float:
        """The standard error of the difference, input by input: those that both decide alike do not add to it."""
        apart = self.first_only - self.second_only
        return math.sqrt(self.first_only + self.second_only - apart**2 / self.inputs) / self.inputs

    @property
    def differ(self) -> bool:
        """Whether the difference is above two standard errors."""
        return abs(self.accuracy[1] - self.accuracy[0]) > ERRORS_APART * self.error


@dataclass(frozen=True)
class ModelChanges:
    """Hold what two networks make of the same inputs.

    Args:
        first: what the first is called.
        second: what the second is called.
        inputs: how many different inputs are in both tables.
        decided: how many have a decision in both; ``None`` where a table has none.
        otherwise: how many of these are decided otherwise.
        decisions: some of those, the ones that became wrong first.
        answers: right and wrong ones, where labels are known.
        groupings: how kinds agree, for each column that both tables have.
        notes: what to bear in mind.
    """

    first: str
    second: str
    inputs: int
    decided: int | None = None
    otherwise: int = 0
    decisions: tuple[Decision, ...] = ()
    answers: Answers | None = None
    groupings: tuple[Grouping, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with a schema version."""
        return {"schema": SCHEMA, **asdict(self)}


def compare_tables(
    first: InputTable, second: InputTable, names: tuple[str, str] = ("first", "second"), *, listed: int = _LISTED
) -> ModelChanges:
    """Compare what two networks make of the same inputs, by the tables of both.

    Args:
        first: with a column ``key``; ``prediction``, ``label`` and kinds are compared as far as they are there.
        second: the same of the other network.
        names: what to call them.
        listed: how many inputs a list may name.
    """
    tables = (first, second)
    rows, notes = _matched(tables, names)
    decided, otherwise, answers = None, [], None
    if all("prediction" in table.columns for table in tables):
        found = [_decision(tables, pair) for pair in rows]
        known = [one for one in found if one.first is not None and one.second is not None]
        decided, otherwise = len(known), [one for one in known if one.first != one.second]
        answers = _answers(one for one in known if one.label is not None)
        # What was right and is wrong now comes first, then what is right now.
        otherwise.sort(key=lambda one: (one.label is None, one.first != one.label, one.second != one.label))
    else:
        notes.append("decisions are not compared: a table has no column 'prediction'")
    columns = [column for column in first.columns if column.endswith(GROUPINGS) and column in second.columns]
    if not columns:
        notes.append("kinds are not compared: measure with LCC, whose tables have a column 'LCC.kind'")
    return ModelChanges(
        *names,
        inputs=len(rows),
        decided=decided,
        otherwise=len(otherwise),
        decisions=tuple(otherwise[:listed]),
        answers=answers,
        groupings=tuple(_grouping(column, tables, rows, listed) for column in columns),
        notes=tuple(notes),
    )


def adjusted_rand(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return how far two groupings of the same things agree: 1 if wholly, 0 as much as by chance.

    >>> adjusted_rand("aabb", "xxyy"), adjusted_rand("aabb", "xyxy")
    (1.0, -0.5)
    """
    both, one, two, all_pairs = _pairs(first, second)
    first_only, second_only = one - both, two - both
    if not first_only and not second_only:
        return 1.0
    none = all_pairs - both - first_only - second_only
    # Whole numbers throughout, so that nothing is lost with millions of inputs.
    above = 2 * (both * none - first_only * second_only)
    below = one * (first_only + none) + two * (second_only + none)
    return above / below


def _pairs(first: Sequence[Hashable], second: Sequence[Hashable]) -> tuple[int, int, int, int]:
    """Count the pairs of things that are together in both, in the first, in the second, and all."""
    sizes = Counter(zip(first, second, strict=True)).values(), Counter(first).values(), Counter(second).values()
    both, one, two = (sum(count * (count - 1) // 2 for count in some) for some in sizes)
    return both, one, two, len(first) * (len(first) - 1) // 2


def _matched(tables: tuple[InputTable, InputTable], names: tuple[str, str]) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the rows of inputs that are in both tables, each input once, and notes on the others."""
    places = []
    for table, name in zip(tables, names, strict=True):
        if "key" not in table.columns:
            raise InputError(
                f"{name}: the table has no column 'key' to tell inputs by: write it with this version, of a coverage "
                "that keeps keys"
            )
        places.append({key: row for row, key in reversed(list(enumerate(table["key"])))})
    ours, theirs = places
    rows = [(row, theirs[key]) for key, row in sorted(ours.items(), key=lambda item: item[1]) if key in theirs]
    if not rows:
        raise MismatchError(
            f"no input is in both {names[0]} and {names[1]}: is it the same suite, with the same preprocessing?"
        )
    notes = []
    for table, found, name in zip(tables, places, names, strict=True):
        if len(found) > len(rows):
            apart = len(found) - len(rows)
            are = agreeing(apart, "is", "are")
            notes.append(f"{counted(apart, 'input')} of {name} {are} not in the other and {are} left out")
        if len(table) > len(found):
            again = len(table) - len(found)
            have, count = agreeing(again, "has", "have"), agreeing(again, "counts", "count")
            notes.append(f"{counted(again, 'input')} of {name} {have} the content of another and {count} once")
    return rows, notes


def _decision(tables: tuple[InputTable, InputTable], pair: tuple[int, int]) -> Decision:
    labels = [table["label"][row] for table, row in zip(tables, pair, strict=True) if "label" in table.columns]
    label = next((_plain(label) for label in labels if label is not None), None)
    first, second = (_plain(table["prediction"][row]) for table, row in zip(tables, pair, strict=True))
    return Decision(_plain(tables[0]["id"][pair[0]]), label, first, second)


def _answers(decisions: Iterable[Decision]) -> Answers | None:
    counted = Counter((one.first == one.label, one.second == one.label) for one in decisions)
    if not counted:
        return None
    return Answers(*(counted[right] for right in ((True, True), (True, False), (False, True), (False, False))))


def _grouping(column: str, tables: tuple[InputTable, InputTable], rows: list[tuple[int, int]], listed: int) -> Grouping:
    kinds = [(row, tables[0][column][row], tables[1][column][other]) for row, other in rows]
    known = [(row, one, two) for row, one, two in kinds if one is not None and two is not None]
    first, second = [one for _, one, _ in known], [two for _, _, two in known]
    both, one_pairs, two_pairs, _ = _pairs(first, second)
    sizes = Counter(first), Counter(second), Counter(zip(first, second, strict=True))
    moved = []
    for row, one, two in known:
        alone = (sizes[0][one] - 1, sizes[1][two] - 1, sizes[2][one, two] - 1)
        if alone[0] != alone[2] or alone[1] != alone[2]:
            moved.append((row, alone))
    # By what share of all its companions an input keeps, then by how many it had.
    moved.sort(key=lambda item: (item[1][2] / (item[1][0] + item[1][1] - item[1][2]), -item[1][0] - item[1][1]))
    return Grouping(
        column,
        inputs=len(known),
        groups=(len(sizes[0]), len(sizes[1])),
        pairs=(both, one_pairs - both, two_pairs - both),
        agreement=adjusted_rand(first, second),
        changed=len(moved),
        moved=tuple(Moved(_plain(tables[0]["id"][row]), *alone) for row, alone in moved[:listed]),
    )


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value

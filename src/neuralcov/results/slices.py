"""What each slice of a suite covers: the inputs that share a value of some column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class SliceRow:
    """Hold one slice.

    Args:
        slice: the value that its inputs share, as text.
        inputs: how many these are.
        alone: by criterion, the value that these inputs alone have; ``None`` where it was not measured.
        lost: by criterion, by how much the value of all inputs is above that of all but these; ``None`` likewise.
        judged: how many have both a label and a class that the model chose.
        right: for how many of these the two agree.
        mistaken: of a class by label, what the model took its inputs for where it is wrong, and how often.
    """

    slice: str
    inputs: int
    alone: Mapping[str, float | None]
    lost: Mapping[str, float | None]
    judged: int = 0
    right: int = 0
    mistaken: Mapping[str, int] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The share of right answers, ``None`` where labels or decisions are not known."""
        return self.right / self.judged if self.judged else None


@dataclass(frozen=True)
class SliceTable:
    """Hold the slices by one column; every input is in one of them. ``notes`` say what was left out."""

    column: str
    rows: tuple[SliceRow, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, value: object) -> SliceRow:
        for row in self.rows:
            if row.slice == str(value):
                return row
        raise KeyError(f"no slice {value!r} by {self.column}: there are {', '.join(row.slice for row in self.rows)}")

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as files keep it."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SliceTable:
        """Read what a file holds."""
        rows = tuple(
            SliceRow(
                str(row["slice"]),
                int(row["inputs"]),
                _numbers(row["alone"]),
                _numbers(row["lost"]),
                int(row.get("judged", 0)),
                int(row.get("right", 0)),
                {str(name): int(times) for name, times in row.get("mistaken", {}).items()},
            )
            for row in content["rows"]
        )
        return cls(str(content["column"]), rows, tuple(str(note) for note in content["notes"]))


def _numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    return {str(name): None if value is None else float(value) for name, value in values.items()}

"""What came of a campaign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from neuralcov.fuzz.book import Book
from neuralcov.fuzz.findings import Fault, grouped
from neuralcov.fuzz.mutations import Mutation
from neuralcov.fuzz.space import Space
from neuralcov.fuzz.stats import Stats


@dataclass(frozen=True, eq=False)
class Campaign:
    """The result of :meth:`neuralcov.Fuzzer.run`.

    Args:
        stats: the figures at the end.
        faults: what was found wrong, in order.
        findings: what to bear in mind when reading the coverage.
        left_out: by number, root inputs that could not serve as seeds, and why.
        exact: whether waves repeated on resuming came out as logged; ``False`` on another device or version.
        folder: where everything lies.
        space: how inputs are stored.
        mutations: what steps of lineages refer to.
    """

    stats: Stats
    faults: Sequence[Fault]
    findings: tuple[str, ...]
    left_out: Mapping[int, str]
    exact: bool
    folder: Path | None
    space: Space
    mutations: Sequence[Mutation]
    _book: Book

    @property
    def iterations(self) -> int:
        """Seeds that are done with."""
        return self.stats.iterations

    @property
    def outputs(self) -> int:
        """Mutants that were kept."""
        return self.stats.kept

    @property
    def values(self) -> Mapping[str, float]:
        """Coverage at the end, by criterion."""
        return self.stats.values

    @cached_property
    def inputs(self) -> Tensor:
        """The kept mutants as they are stored: bytes for images that came as bytes."""
        return self._book.corpus.inputs(slice(self._book.corpus.roots, None))

    @property
    def predictions(self) -> np.ndarray:
        """The class the model gives each kept mutant, −1 where it gives none."""
        return np.asarray(self._book.corpus.entries["prediction"][self._book.corpus.roots :])

    def groups(self) -> dict[tuple[str, ...], list[Fault]]:
        """Faults by group, the largest first."""
        return grouped(self.faults)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the figures, the groups and what to bear in mind."""
        return {
            **self.stats.to_json(),
            "candidates per second": self.stats.judged / self.stats.seconds if self.stats.seconds else None,
            "groups": [[*group, len(faults)] for group, faults in self.groups().items()],
            "findings": list(self.findings),
            "left out": {str(row): reason for row, reason in self.left_out.items()},
            "exact": self.exact,
        }

    def __repr__(self) -> str:
        return (
            f"Campaign({self.iterations} seeds, {self.outputs} kept, {len(self.faults)} faults in "
            f"{self.stats.classes} classes, {self.stats.seconds:.1f} s)"
        )

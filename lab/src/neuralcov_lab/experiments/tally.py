"""A tally: many criteria with their states, fed together, each in the way it wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import SPLIT_FREE
from neuralcov.core.errors import InputError
from neuralcov.core.layout import Layout
from neuralcov.coverage.collection import CriterionCollection, SharedStates
from neuralcov_lab.experiments.settings import AnyCriterion

Values = dict[str, float]


class Tally:
    """Criteria and their states, where those that care how inputs are batched are given chunks of one size."""

    def __init__(self, criteria: Sequence[AnyCriterion], layout: Layout, chunk: int | None) -> None:
        self.layout, self.chunk = layout, chunk
        self._order = [criterion.name for criterion in criteria]
        careful = [c for c in criteria if chunk is not None and SPLIT_FREE not in c.promises]
        usual = [criterion for criterion in criteria if criterion not in careful]
        self._collections = [
            (_collection(some, layout), chunked) for some, chunked in ((usual, False), (careful, True)) if some
        ]

    @property
    def states(self) -> tuple[SharedStates | None, ...]:
        """What :meth:`start_from` takes; they are not overwritten from here on."""
        return tuple(collection.share() for collection, _ in self._collections)

    @property
    def inputs(self) -> int:
        """How many inputs were observed."""
        return self._collections[0][0].inputs

    def start_from(self, states: tuple[SharedStates | None, ...]) -> None:
        """Go on from the states of another tally of the same criteria."""
        for (collection, _), state in zip(self._collections, states, strict=True):
            collection.adopt(state)

    def observe(self, batch: Activations) -> None:
        """Take a batch in."""
        for collection, chunked in self._collections:
            if chunked and self.chunk is not None:
                for start in range(0, batch.size, self.chunk):
                    collection.observe(batch.take(slice(start, min(start + self.chunk, batch.size))))
            else:
                collection.observe(batch)

    def keep(self, wanted: Callable[[AnyCriterion], bool]) -> None:
        """Go on with some of the criteria only."""
        found = []
        for collection, chunked in self._collections:
            chosen = [index for index, criterion in enumerate(collection.criteria) if wanted(criterion)]
            if chosen:
                assert collection.layout is not None
                rest = _collection([collection.criteria[index] for index in chosen], collection.layout)
                states = collection.share()
                rest.adopt(None if states is None else tuple(states[index] for index in chosen))
                found.append((rest, chunked))
        self._collections = found

    def values(self) -> Values:
        """By criterion, in the order given."""
        found = {name: value for collection, _ in self._collections for name, value in collection.values().items()}
        return {name: found[name] for name in self._order if name in found}

    def details(self) -> dict[str, dict[str, float]]:
        """What stands beside the values."""
        return {name: figures for collection, _ in self._collections for name, figures in collection.details().items()}

    def left_out(self) -> dict[str, int]:
        """By criterion, how many inputs it left out."""
        found: dict[str, int] = {}
        for collection, _ in self._collections:
            # A criterion that could place no input at all has the value 0, which is what there is to say.
            with suppress(InputError):
                found |= {finding.criterion: finding.inputs for finding in collection.findings() if finding.inputs}
        return found


def _collection(criteria: Sequence[AnyCriterion], layout: Layout) -> CriterionCollection:
    collection = CriterionCollection(criteria)
    collection.layout = layout
    return collection

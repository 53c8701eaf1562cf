"""A tally: many criteria with their states, fed together, each in the way it wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import SPLIT_FREE
from neuralcov.core.errors import InputError
from neuralcov.core.layout import Layout
from neuralcov.coverage.collection import Ledger, SharedStates
from neuralcov_lab.experiments.settings import AnyCriterion

Values = dict[str, float]


class Tally:
    """Criteria and their states, where those that care how inputs are batched are given chunks of one size."""

    def __init__(self, criteria: Sequence[AnyCriterion], layout: Layout, chunk: int | None) -> None:
        self.layout, self.chunk = layout, chunk
        self._order = [criterion.name for criterion in criteria]
        careful = [c for c in criteria if chunk is not None and SPLIT_FREE not in c.promises]
        usual = [criterion for criterion in criteria if criterion not in careful]
        self._ledgers = [
            (_ledger(some, layout), chunked) for some, chunked in ((usual, False), (careful, True)) if some
        ]

    @property
    def states(self) -> tuple[SharedStates | None, ...]:
        """What :meth:`start_from` takes; they are not overwritten from here on."""
        return tuple(ledger.share() for ledger, _ in self._ledgers)

    @property
    def inputs(self) -> int:
        """How many inputs were observed."""
        return self._ledgers[0][0].inputs

    def start_from(self, states: tuple[SharedStates | None, ...]) -> None:
        """Go on from the states of another tally of the same criteria."""
        for (ledger, _), state in zip(self._ledgers, states, strict=True):
            ledger.adopt(state)

    def observe(self, batch: Activations) -> None:
        """Take a batch in."""
        for ledger, chunked in self._ledgers:
            if chunked and self.chunk is not None:
                for start in range(0, batch.size, self.chunk):
                    ledger.observe(batch.take(slice(start, min(start + self.chunk, batch.size))))
            else:
                ledger.observe(batch)

    def keep(self, wanted: Callable[[AnyCriterion], bool]) -> None:
        """Go on with some of the criteria only."""
        found = []
        for ledger, chunked in self._ledgers:
            chosen = [index for index, criterion in enumerate(ledger.criteria) if wanted(criterion)]
            if chosen:
                assert ledger.layout is not None
                rest, states = _ledger([ledger.criteria[index] for index in chosen], ledger.layout), ledger.share()
                rest.adopt(None if states is None else tuple(states[index] for index in chosen))
                found.append((rest, chunked))
        self._ledgers = found

    def values(self) -> Values:
        """By criterion, in the order given."""
        found = {name: value for ledger, _ in self._ledgers for name, value in ledger.values().items()}
        return {name: found[name] for name in self._order if name in found}

    def details(self) -> dict[str, dict[str, float]]:
        """What stands beside the values."""
        return {name: figures for ledger, _ in self._ledgers for name, figures in ledger.details().items()}

    def left_out(self) -> dict[str, int]:
        """By criterion, how many inputs it left out."""
        found: dict[str, int] = {}
        for ledger, _ in self._ledgers:
            # A criterion that could place no input at all has the value 0, which is what there is to say.
            with suppress(InputError):
                found |= {finding.criterion: finding.inputs for finding in ledger.findings() if finding.inputs}
        return found


def _ledger(criteria: Sequence[AnyCriterion], layout: Layout) -> Ledger:
    ledger = Ledger(criteria)
    ledger.layout = layout
    return ledger

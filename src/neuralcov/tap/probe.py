"""The probe: two short runs of a model that show which rows of each layer's output belong to which input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from neuralcov.tap.absent import module_name
from neuralcov.tap.inputs import first_tensor
from neuralcov.tap.kinds import Kind
from neuralcov.tap.known_rows import KnownRows
from neuralcov.tap.members import Members
from neuralcov.tap.rows import Note, Rows, checked_owners, note

Notes = dict[str, Note]


class Probe:
    """Asks a model about the order of rows, and keeps what it learnt.

    Args:
        run: runs the model on a part of a batch, given as its first input and their number, and gives what it noted.
        choice: the user's ``layers=``.
        rows: the user's ``rows=``, from a layer and its output to the input of each row.
    """

    def __init__(self, run: Callable[[Members, int, int], Notes], choice: object, rows: Rows | None) -> None:
        self.known = KnownRows(choice)
        self._run, self._rows = run, rows

    def owners(self, layer: str, output: Tensor, size: int) -> Tensor | None:
        """The input of each row, where somebody says it."""
        if self._rows is None:
            return None
        owners = self._rows(layer, output)
        return None if owners is None else checked_owners(owners, output, size, layer)

    def note(self, notes: Notes, layer: str, kind: Kind, output: Any, size: int) -> None:
        """Note in a run of the probe what a layer returned, unless somebody says whose its rows are."""
        tensor = first_tensor(output)
        if tensor is None or self.owners(layer, tensor, size) is not None:
            return
        noted = note(output, kind, size)
        # Calls of a recurrent cell are steps of one loop, of which the first speaks for all.
        if noted is not None and not (kind.cell and layer != module_name(layer)):
            notes[layer] = noted

    def ask(self, members: Members, fixed: Collection[str], again: Mapping[str, Any] | None = None) -> bool:
        """Run the model on a few inputs alone, and learn; return whether that was possible.

        Args:
            members: the batch to take them from.
            fixed: layers that have been measured, which cannot be left out any more.
            again: settled layers that gave a shape which does not agree with what was found.
        """
        known = self.known
        if not members.only_tensors():
            known.why_not = ", and the inputs hold objects other than tensors"
            return False
        if capturing():
            return False
        problems: dict[str, str] = {}
        for start, many, few in known.tries(members.size):
            try:
                larger, smaller = (self._run(members, start, count) for count in (many, few))
            except Exception as error:
                # The whole batch comes next: if the model cannot take that either, its own error is raised there.
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                known.asked, known.why_not = True, f", and the model cannot be run on a few of them alone ({said})"
                return False
            problems = known.learn(larger, smaller, (many, few), members.axes(), again or ()) | problems
            if not known.undecided:
                break
        known.why_not = ""
        known.drop(problems, fixed)
        return True


def capturing() -> bool:
    """Whether a CUDA graph is being recorded, in which the model can be run once only."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()

"""The probe: two short runs of a model that show which rows of each layer's output belong to which input."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from neuralcov.tap.axes import OutputAxes
from neuralcov.tap.experts import ExpertRows
from neuralcov.tap.inputs import first_tensor
from neuralcov.tap.known_rows import KnownRows
from neuralcov.tap.layers import module_name
from neuralcov.tap.members import Members
from neuralcov.tap.rows import Note, Rows, checked_owners, note, own_rows

Notes = dict[str, Note]
# How often further inputs of one batch are asked while two orders fit.
_MOST_TRIES = 4
# How many groups of inputs experts are asked about.
_MOST_GROUPS = 8


class Probe:
    """Asks a model about the order of rows, and keeps what it learnt.

    Args:
        model: the model.
        run: runs the model on some inputs of a batch, and gives what it noted.
        choice: the user's ``layers=``.
        rows: the user's ``rows=``, from a layer and its output to the input of each row.
        experts: what knows it of experts.
    """

    def __init__(
        self,
        model: nn.Module,
        run: Callable[[Members, Sequence[int]], Notes],
        choice: object,
        rows: Rows | None,
        experts: ExpertRows,
    ) -> None:
        self.known = KnownRows(choice)
        self._experts, self._model = experts, model
        self._in_step: bool | None = None
        self._run, self._rows = run, rows
        self._groups = _MOST_GROUPS
        self.has_owners = rows is not None or bool(experts)

    def fork(self, run: Callable[[Members, Sequence[int]], Notes], experts: ExpertRows) -> Probe:
        """Copy this probe with what it learnt, for another tap of the same model."""
        twin = copy.copy(self)
        twin.known = copy.deepcopy(self.known)
        twin._run, twin._experts = run, experts
        return twin

    def owners(self, layer: str, output: Tensor, size: int, padding: Any = None) -> Tensor | None:
        """Return the input of each row, where somebody says it: the user, or else a library's experts."""
        owners = None if self._rows is None else self._rows(layer, output)
        if owners is None:
            return self._experts.owners(layer, output, size, padding)
        return checked_owners(owners, output, size, layer)

    def routed(self, layer: str, output: Tensor, size: int, padding: Any = None) -> tuple[Tensor, int] | None:
        """Return the token of each row, and tokens per input, where a library's experts say it."""
        return self._experts.routed(layer, output, size, padding)

    def note(self, notes: Notes, layer: str, kind: OutputAxes, output: Any, size: int) -> None:
        """Note in a run of the probe what a layer returned, unless somebody says whose its rows are."""
        tensor: Any = first_tensor(output)
        if tensor is not None and hasattr(tensor, "full_tensor"):
            # Spread over ranks, all of which run the probe.
            own = own_rows(tensor, size)
            tensor = output = own if own is not tensor else tensor.full_tensor()
        if tensor is None or self.owners(layer, tensor, size) is not None:
            return
        noted = note(output, kind, size)
        # Calls of a recurrent cell are steps of one loop, of which the first speaks for all.
        if noted is not None and not (kind.cell and layer != module_name(layer)):
            notes[layer] = noted

    def prepare(self, members: Members, fixed: Collection[str]) -> bool:
        """Ask what is open before a batch is measured; return whether that was all about this batch.

        Args:
            members: the batch.
            fixed: layers that have been measured, which cannot be left out any more.
        """
        if self._in_step is None:
            self._in_step = runs_in_step(self._model)
        if self._in_step and not self.known.asked and not all_agree(members.size > 1 and members.only_tensors()):
            self.known.why_not = ", and the model, spread over processes, was not given several inputs in all of them"
            return False
        if members.size < 2:
            return False
        if self.known.wants_probe():
            return self.ask(members, fixed)
        if self._in_step:
            return True  # a question that one process has about its inputs must not make it run the model alone
        if (self.known.doubtful or (self._groups and self.known.experts)) and members.only_tensors():
            self.known.drop(self._doubts(members), fixed)
        return False

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
        for some in _tries(members):
            try:
                larger, smaller = self._run(members, some), self._run(members, some[:-1])
            except Exception as error:
                # The whole batch comes next: if the model cannot take that either, its own error is raised there.
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                known.asked, known.why_not = True, f", and the model cannot be run on a few of them alone ({said})"
                return False
            sizes = len(some), len(some) - 1
            problems = known.learn(larger, smaller, sizes, members.axes(), again or ()) | problems
            if self._in_step or not known.undecided:
                break
        known.why_not = ""
        known.drop(problems if self._in_step else self._doubts(members) | problems, fixed)
        return True

    def _doubts(self, members: Members) -> dict[str, str]:
        """Return layers whose rows followed an order by the chance of what was in the inputs, and why that is known."""
        problems: dict[str, str] = {}
        known = self.known
        unlike = members.unlike() if known.doubtful and not capturing() else None
        if unlike is not None:
            try:
                larger, smaller = self._run(members, unlike), self._run(members, unlike[:-1])
            except Exception as error:
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                problems = dict.fromkeys(known.doubtful, f"inputs of unlike lengths cannot be run alone ({said})")
            else:
                problems = known.confirm(larger, smaller, (len(unlike), len(unlike) - 1))
        for start in range(0, members.size - 2, 3):
            if not known.experts or not self._groups or capturing():
                break
            self._groups -= 1
            problems |= known.count(self._run(members, range(start, start + 3)), 3)
        return problems


def _tries(members: Members) -> Iterator[list[int]]:
    """Yield inputs to run alone: the first three, and then, since equal ones cannot tell, others that differ."""
    many = min(3, members.size)
    yield list(range(many))
    keys = members.keys()
    if members.size <= 2 or keys is None:
        return
    first = {tuple(key): row for row, key in reversed(list(enumerate(keys.tolist())))}
    differing = sorted(first.values())
    for start in range(0, len(differing) - 1, many)[: _MOST_TRIES - 1]:
        some = differing[start : start + many]
        yield (some + [row for row in range(members.size) if row not in some])[:many]


def runs_in_step(model: nn.Module) -> bool:
    """Return whether a model's parameters are spread over processes, so that all of these must run it together."""
    group = torch.distributed
    if not group.is_available() or not group.is_initialized() or group.get_world_size() == 1:
        return False
    spread = any(type(parameter).__name__ == "DTensor" for parameter in model.parameters())
    return spread or any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())


def all_agree(here: bool) -> bool:
    """Return whether something is true in all processes of the group."""
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor(int(here), device=device)
    torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MIN)
    return bool(flag)


def capturing() -> bool:
    """Return whether a CUDA graph is being recorded, in which the model can be run once only."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()

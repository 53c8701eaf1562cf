"""Cells: the pieces an experiment is cut into, each computed once and kept as a file."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

from neuralcov.core.errors import InputError, NeuralcovError
from neuralcov.core.files import lock_file
from neuralcov_lab.experiments.scales import Scale, scale_from_json
from neuralcov_lab.experiments.workbench import Workbench

DONE, FAILED = "done", "failed"


@dataclass(frozen=True)
class Cell:
    """One piece of an experiment.

    Args:
        name: unique among all experiments; the file's name.
        experiments: those that use it.
        compute: from a workbench and the parameters to plain data; nothing else may matter.
        parameters: plain data.
        work: how much there is to do, in inputs measured, for estimates.
        rank: cells of low rank are computed first.
        kind: cells of one kind take about the same time for the same work.
    """

    name: str
    experiments: tuple[str, ...]
    compute: Callable[..., dict[str, Any]]
    parameters: Mapping[str, Any]
    work: float
    rank: int
    kind: str

    def description(self) -> dict[str, Any]:
        """What identifies it."""
        return {
            "experiments": list(self.experiments),
            "parameters": dict(self.parameters),
            "work": self.work,
            "rank": self.rank,
            "kind": self.kind,
        }


@dataclass
class Outcome:
    """What became of the cells of one run."""

    computed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, float | None] = field(default_factory=dict)


class CellFolder:
    """Where cells are kept: ``plan.json`` and ``cells/NAME.json``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def plan(self) -> tuple[Scale, dict[str, dict[str, Any]]]:
        """The scale and every cell ever planned here."""
        if not (self.path / "plan.json").is_file():
            raise InputError(
                f"{self.path}: holds no results; run `neuralcov reproduce NAME --output {self.path}` first"
            )
        content = json.loads((self.path / "plan.json").read_text())
        return scale_from_json(content["scale"]), content["cells"]

    def add_plan(self, scale: Scale, cells: Sequence[Cell]) -> None:
        """Put cells on the plan; results of another scale are refused."""
        # Other processes must not change the plan meanwhile: what one adds, another would overwrite.
        with lock_file(self.path / ".lock", wait=True):
            planned: dict[str, Any] = {}
            if (self.path / "plan.json").is_file():
                before, planned = self.plan()
                difference = scale.differs(before)
                if difference is not None:
                    raise InputError(
                        f"{self.path}: holds results of another scale, {difference}; choose another --output"
                    )
            planned |= {cell.name: cell.description() for cell in cells}
            write_json(self.path / "plan.json", {"scale": scale.to_json(), "cells": planned})

    def read(self, name: str) -> dict[str, Any] | None:
        """What a cell gave, or ``None``."""
        path = self.path / "cells" / f"{name}.json"
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text())
        except ValueError as error:
            raise InputError(f"{path}: not a cell, or damaged ({error}); remove it to compute it again") from error
        return dict(content)

    def write(self, cell: Cell, content: Mapping[str, Any]) -> None:
        """Keep what a cell gave, in one step."""
        write_json(self.path / "cells" / f"{cell.name}.json", {"name": cell.name, **cell.description(), **content})

    def results(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Cells that are done, with what they gave."""
        for name in self.plan()[1]:
            content = self.read(name)
            if content is not None and content["status"] == DONE:
                yield name, content


def run_cells(
    cells: Sequence[Cell],
    folder: CellFolder,
    bench: Workbench,
    *,
    budget: float | None = None,
    only: Sequence[str] = (),
    notify: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Compute what is missing, lowest rank first, as long as the budget lasts.

    A cell that is expected not to fit into what is left is passed over; finished ones are kept, failed ones
    tried again.

    Args:
        cells: what is planned.
        folder: where results are kept; several processes may share it if ``only`` gives each its own cells.
        bench: what every cell is given.
        budget: seconds.
        only: patterns, of which the names of cells to compute match one; without any, all are computed.
        notify: told what is going on.
    """
    chosen = [cell for cell in cells if not only or any(fnmatchcase(cell.name, pattern) for pattern in only)]
    if not chosen:
        raise InputError(f"no cell matches {' or '.join(only)}; there are {_examples(cells)}")
    folder.add_plan(bench.scale, cells)
    outcome, started = Outcome(), time.monotonic()
    for cell in sorted(chosen, key=lambda cell: cell.rank):
        before = folder.read(cell.name)
        if before is not None and before["seed"] != bench.seed:
            raise InputError(
                f"{folder.path}: holds results of seed {before['seed']}, not {bench.seed}; choose another --output, "
                "since suites of different seeds cannot be compared"
            )
        if before is not None and before["status"] == DONE and before["parameters"] == _plain(cell.parameters):
            outcome.kept.append(cell.name)
            continue
        expected = estimate(cell.name, folder)
        left = None if budget is None else budget - (time.monotonic() - started)
        if left is not None and (left <= 0 or (expected or 0) > left):
            outcome.not_run[cell.name] = expected
            continue
        notify(f"{cell.name} …" if expected is None else f"{cell.name} (about {expected:.0f} s) …")
        reason = _compute(cell, folder, bench)
        if reason is None:
            outcome.computed.append(cell.name)
        else:
            outcome.failed[cell.name] = reason
            notify(f"{cell.name} failed: {reason}")
    return outcome


def estimate(name: str, folder: CellFolder) -> float | None:
    """Seconds a cell is expected to take, from finished ones of its kind, or else of any; ``None`` without any."""
    planned = folder.plan()[1]
    cell = planned[name]
    rates: dict[str, list[float]] = {}
    for done, content in folder.results():
        rates.setdefault(planned[done]["kind"], []).append(content["seconds"] / max(content["work"], 1))
    known = rates.get(cell["kind"]) or [rate for kind in rates.values() for rate in kind]
    return median(known) * cell["work"] if known else None


def write_json(path: Path, content: Any) -> None:
    """Write plain data so that a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Processes that share a folder must not write into each other's unfinished files.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    os.replace(unfinished, path)


def _compute(cell: Cell, folder: CellFolder, bench: Workbench) -> str | None:
    """Compute one cell and keep it; give the reason if it failed."""
    started, prepared = time.monotonic(), bench.prepared
    about: dict[str, Any] = {"seed": bench.seed, "scale": bench.scale.name, "divided": bench.scale.divided}
    try:
        result = cell.compute(bench, **cell.parameters)
    except NeuralcovError as error:
        reason = str(error)
    except Exception as error:
        # A bug or a lack of memory in one cell must not cost the others; the place goes into the file.
        reason = f"{type(error).__name__}: {error}"
        about["traceback"] = traceback.format_exc()
    else:
        bench.wait()
        preparing = bench.prepared - prepared
        seconds = time.monotonic() - started - preparing
        took = {"seconds": round(seconds, 3), "preparing": round(preparing, 3)}
        # Only now are all packages imported whose versions are stated.
        folder.write(cell, {"status": DONE, **took, "machine": bench.machine(), **about, "result": result})
        return None
    took = {"seconds": round(time.monotonic() - started, 3)}
    folder.write(cell, {"status": FAILED, "reason": reason, **took, "machine": bench.machine(), **about})
    return reason


def _examples(cells: Sequence[Cell]) -> str:
    names = sorted(cell.name for cell in cells)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _plain(parameters: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(dict(parameters)))

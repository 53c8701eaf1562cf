"""Processes that share the work of ``measure``: those that torchrun started, or local ones started here."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, multiprocessing

from neuralcov.core.errors import InputError, RankError
from neuralcov.coverage.coverage import Coverage
from neuralcov.distributed import PATIENCE, Ranks, joined_by_torchrun, ranks_of

if TYPE_CHECKING:
    from neuralcov.cli.measuring import Names

# A process imports torch and its model's packages before it reports.
_STARTING = timedelta(minutes=5)
_LOOK = 0.05
# Seconds in which the others are told what went wrong here.
_TELLING = 60


@dataclass(frozen=True)
class Work:
    """Tell a local process what to measure."""

    names: Names
    criteria: tuple[str, ...]
    errors: bool
    sync: str


@contextmanager
def shared_by(workers: int, options_of_one: Mapping[str, Any], work: Work) -> Iterator[Ranks | None]:
    """Give the processes that share a suite, in each of them; ``None`` where there is one.

    Args:
        workers: how many local ones to have.
        options_of_one: options that only a single process can serve, with their values.
        work: what the others do.
    """
    launched = joined_by_torchrun()
    if not launched and workers == 1:
        yield None
        return
    if launched and workers > 1:
        raise InputError("--workers starts processes, and torchrun has started some already: leave one of them out")
    for option, value in options_of_one.items():
        if value is not None:
            raise InputError(f"{option} needs all inputs in one process: leave it out, or measure in one")
    if launched:
        if distributed.get_rank():
            warnings.simplefilter("ignore")  # the first rank tells
        ranks = ranks_of()
        with _told_to_all(ranks):
            yield ranks
        return
    if torch.device(work.names.device).type != "cpu":
        raise InputError(f"--workers starts processes on the CPU, not on {work.names.device}: use torchrun for devices")
    with _local(workers, work) as ranks:
        yield ranks


def own_device(names: Names, ranks: Ranks | None) -> Names:
    """Return the names with this process's own GPU in place of ``cuda``."""
    if ranks is None or names.device != "cuda":
        return names
    return replace(names, device=f"cuda:{os.environ.get('LOCAL_RANK', '0')}")


def calibrate_once(coverage: Coverage, data: Iterable[Any], held_out: Any, ranks: Ranks | None) -> None:
    """Calibrate in the first process; the others learn the same from it, to the bit."""
    if ranks is None:
        coverage.calibrate(data, held_out=held_out)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shared.ncal")

        def learnt() -> bytes:
            coverage.calibrate(data, held_out=held_out)
            coverage.save_calibration(path)
            return path.read_bytes()

        found = ranks.share(learnt)
        if ranks.rank:
            path.write_bytes(found)
            coverage.calibrate(path)


@contextmanager
def _local(size: int, work: Work) -> Iterator[Ranks | None]:
    """Start all but the first of the local processes, which is this one, and end them with the block."""
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder, "meeting"))
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=run, args=(work, rank, size, meeting), daemon=True) for rank in range(1, size)
        ]
        try:
            for process in processes:
                process.start()
            store = _store(meeting, size)
            _await(store, processes)
            _join(store, 0, size)
            ranks = ranks_of()
            with _told_to_all(ranks):
                yield ranks
            for process in processes:
                process.join()
        finally:
            for process in processes:
                if process.is_alive():
                    process.terminate()
            if distributed.is_initialized():
                distributed.destroy_process_group()
            torch.set_num_threads(threads)


@contextmanager
def _told_to_all(ranks: Ranks | None) -> Iterator[None]:
    """Tell the other processes what went wrong in a block, which may be waiting for this one."""
    try:
        yield
    except RankError:
        raise  # they know
    except Exception as error:
        if ranks is not None:
            failure = error

            def fail() -> bytes:
                raise failure

            # Whatever they exchange next, this stands in its place; where they are gone already, nobody listens.
            with suppress(Exception):
                Ranks(timeout=_TELLING).gather(fail)
        raise


def _await(store: Any, processes: list[SpawnProcess]) -> None:
    """Wait until all processes have started, or raise the error that one has not."""
    latest = time.monotonic() + _STARTING.total_seconds()
    for rank, process in enumerate(processes, start=1):
        while not store.check([_started(rank)]):
            if not process.is_alive():
                raise RankError(f"local process {rank} ended as it started: look at what it said")
            if time.monotonic() > latest:
                raise RankError(f"local process {rank} did not start within {_STARTING}: start fewer with --workers")
            time.sleep(_LOOK)


def _store(meeting: str, size: int) -> Any:
    """Return the file by which the processes find each other."""
    return vars(distributed)["FileStore"](meeting, size)


def _started(rank: int) -> str:
    return f"started {rank}"


def _join(store: Any, rank: int, size: int) -> None:
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)


def run(work: Work, rank: int, size: int, meeting: str) -> None:
    """Do the share of one local process; what goes wrong is told by the first."""
    from neuralcov.cli.measuring import measure_named

    warnings.simplefilter("ignore")
    store = _store(meeting, size)
    store.set(_started(rank), "yes")
    _join(store, rank, size)
    ranks = ranks_of()
    with suppress(Exception), _told_to_all(ranks):
        measure_named(work.names, work.criteria, errors=work.errors, ranks=ranks, sync=work.sync)
    distributed.destroy_process_group()

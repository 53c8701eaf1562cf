"""Workers on Ray for a campaign that a command runs: each builds the model from the names that a person gave."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from neuralcov.cli.fuzz_setup import CALIBRATION, PreparedFuzzer, build
from neuralcov.core.errors import InputError
from neuralcov.distributed import Workers
from neuralcov.fuzz import Fuzzer

WorkerCount = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Search with so many workers on Ray, each with a GPU unless on the CPU."),
]
RayAddress = Annotated[
    str | None, typer.Option("--ray", help="The cluster of the workers, such as auto; one is started here by default.")
]


@contextmanager
def crew(prepared: PreparedFuzzer, folder: Path, count: int | None, address: str | None) -> Iterator[Workers | None]:
    """Give the workers that a person asked for; ``None`` for none.

    Args:
        prepared: the fuzzer that runs the campaign.
        folder: where it lies.
        count: how many workers.
        address: of their cluster.
    """
    if count is None:
        if address is not None:
            raise InputError("--ray needs --workers N, how many to have there at most")
        yield None
        return
    from neuralcov.integrations.ray import FuzzWorkers

    gpu = {} if prepared.names.device == "cpu" else {"num_gpus": 1}
    with FuzzWorkers(_builder(prepared, folder), count, address=address, **gpu) as workers:
        yield workers


def _builder(prepared: PreparedFuzzer, folder: Path) -> Callable[[], Fuzzer]:
    """Return what builds a like fuzzer in a worker, which sees this machine's files only where they are shared."""
    names, settings, samples = prepared.names, prepared.fuzzer.settings, prepared.samples
    learnt = (folder / CALIBRATION).read_bytes() if (folder / CALIBRATION).is_file() else None

    def make() -> Fuzzer:
        with tempfile.TemporaryDirectory() as place:
            if learnt is not None:
                (Path(place) / CALIBRATION).write_bytes(learnt)
            return build(names, settings, Path(place), resumed=True, kept=samples).fuzzer

    return make

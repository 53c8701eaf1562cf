"""Hold what every job is given: scale, device and seed, and what jobs share so that it is made once."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Hashable
from copy import copy
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar, cast

import torch

from neuralcov import NeuralcovError
from neuralcov_lab.experiments.scales import Scale

T = TypeVar("T")


class ExperimentContext:
    """Give every job its scale, device and seed.

    Args:
        scale: the sizes.
        device: where networks run.
        seed: seed of all random choices.
    """

    def __init__(self, scale: Scale, device: torch.device | str = "cpu", seed: int = 0) -> None:
        self.scale, self.device, self.seed = scale, torch.device(device), seed
        self.companion = False
        self._clock = {"prepared": 0.0}
        self._made: dict[Hashable, Any] = {}
        self._failed: dict[Hashable, NeuralcovError] = {}

    @property
    def prepared(self) -> float:
        """The seconds that went into preparation so far."""
        return self._clock["prepared"]

    def for_companion(self) -> ExperimentContext:
        """Return this context, with all that is made already, for a job that measures later criteria alone."""
        twin = copy(self)
        twin.companion = True
        return twin

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` gives, made at first need.

        What the user has to put right, such as data that is missing, fails again without being tried again. All else
        is tried again: memory, for one, may be there by then.
        """
        if key in self._failed:
            raise self._failed[key]
        if key not in self._made:
            try:
                self._made[key] = make()
            except NeuralcovError as error:
                self._failed[key] = error
                raise
        return cast(T, self._made[key])

    def prepare(self, key: Hashable, make: Callable[[], T]) -> T:
        """Make something once and count its time as preparation, not as that of the job that asked first."""
        if key in self._made:
            return cast(T, self._made[key])
        started, before = time.monotonic(), self.prepared
        made = self.once(key, make)
        self.wait()
        self._clock["prepared"] = before + time.monotonic() - started
        return made

    def wait(self) -> None:
        """Wait for the device, so that times are right."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def generator(self, *numbers: int) -> torch.Generator:
        """Return random numbers of the device, by the seed and further numbers."""
        return torch.Generator(self.device).manual_seed(self.combined_seed(*numbers))

    def combined_seed(self, *numbers: int) -> int:
        """Return a seed of its own for further numbers."""
        return _combined(self.seed, *numbers)

    def seed_of(self, run: int) -> int:
        """Return the seed of a run: the context's own for the first."""
        return self.combined_seed(run) if run else self.seed

    def rows(self, count: int, wanted: int, *numbers: int) -> torch.Tensor:
        """Return so many of ``count`` rows, drawn without repetition, the same on every device."""
        order = torch.randperm(count, generator=torch.Generator().manual_seed(self.combined_seed(*numbers)))
        return order[: min(wanted, count)].to(self.device)

    def machine(self) -> dict[str, Any]:
        """Return device and versions."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.processor() or "CPU"
        return {
            "device": name,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "neuralcov": _version("neuralcov"),
            "foolbox": _version("foolbox"),
        }


def numbers_of(choice: int, run: int) -> tuple[int, ...]:
    """Return what a random choice is made by: its number, and beyond the first run the run's."""
    return (choice, run) if run else (choice,)


def _combined(*numbers: int) -> int:
    """Make one seed from several numbers."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % (2**31 - 1)
    return seed


def _version(package: str) -> str | None:
    """Return the version of a package, installed or merely found on the path; ``None`` where it is not in use."""
    try:
        return version(package)
    except PackageNotFoundError:
        return getattr(sys.modules.get(package), "__version__", None)

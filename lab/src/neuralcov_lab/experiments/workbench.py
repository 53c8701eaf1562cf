"""The workbench: scale, device and seed, and what cells share so that it is made once."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Hashable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar, cast

import torch

from neuralcov.core.errors import NeuralcovError
from neuralcov_lab.experiments.scales import Scale

T = TypeVar("T")


class Workbench:
    """What every cell is given.

    Args:
        scale: the sizes.
        device: where networks run.
        seed: of all random choices.
    """

    def __init__(self, scale: Scale, device: torch.device | str = "cpu", seed: int = 0) -> None:
        self.scale, self.device, self.seed = scale, torch.device(device), seed
        self.prepared = 0.0
        self._made: dict[Hashable, Any] = {}
        self._failed: dict[Hashable, NeuralcovError] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, made at first need.

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
        """The same, where the time counts as preparation for all cells and not as that of one."""
        if key in self._made:
            return cast(T, self._made[key])
        started, before = time.monotonic(), self.prepared
        made = self.once(key, make)
        self.wait()
        self.prepared = before + time.monotonic() - started
        return made

    def wait(self) -> None:
        """Wait for the device, so that times are right."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def generator(self, *numbers: int) -> torch.Generator:
        """Random numbers of the device, by the seed and further numbers."""
        return torch.Generator(self.device).manual_seed(mixed(self.seed, *numbers))

    def seed_of(self, run: int) -> int:
        """The seed of a run: the workbench's own for the first."""
        return mixed(self.seed, run) if run else self.seed

    def rows(self, count: int, wanted: int, *numbers: int) -> torch.Tensor:
        """So many of ``count`` rows, drawn without repetition, the same on every device."""
        order = torch.randperm(count, generator=torch.Generator().manual_seed(mixed(self.seed, *numbers)))
        return order[: min(wanted, count)].to(self.device)

    def machine(self) -> dict[str, Any]:
        """Device and versions."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.processor() or "CPU"
        return {
            "device": name,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "neuralcov": _version("neuralcov"),
            "foolbox": _version("foolbox"),
        }


def numbers_of(choice: int, run: int) -> tuple[int, ...]:
    """What a random choice is made by: its number, and beyond the first run the run's."""
    return (choice, run) if run else (choice,)


def mixed(*numbers: int) -> int:
    """One seed from several numbers."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % (2**31 - 1)
    return seed


def _version(package: str) -> str | None:
    """The version of a package, installed or merely found on the path; ``None`` where it is not in use."""
    try:
        return version(package)
    except PackageNotFoundError:
        return getattr(sys.modules.get(package), "__version__", None)

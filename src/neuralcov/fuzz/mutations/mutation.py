"""Define a mutation: a name, whether it is geometric, and a function over a whole batch, one setting per input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.errors import InputError
from neuralcov.fuzz.randomness import choices, seeded

MutationFunction = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True, eq=False)
class MutationDraw:
    """Hold what was drawn for each input of a batch that one mutation is applied to.

    ``setting`` says which form of the mutation. ``row`` and ``batch_size`` say in which row of how large a batch the
    input was mutated first: functions of the user's own draw their numbers for a whole batch, and need both to be
    repeated.
    """

    setting: np.ndarray
    row: np.ndarray
    batch_size: np.ndarray

    @classmethod
    def of_batch(cls, setting: np.ndarray) -> MutationDraw:
        """Return what was drawn for inputs that are one batch."""
        count = len(setting)
        return cls(setting, np.arange(count), np.full(count, count))

    @classmethod
    def of_table(cls, applied: np.ndarray) -> MutationDraw:
        """Return what a table with these columns tells."""
        return cls(*(applied[name].astype(np.int64) for name in ("setting", "row", "batch_size")))


class Mutation(ABC):
    """Change inputs. Images come as floats in [0, 1], ``(batch, channels, height, width)``; text as tokens.

    A geometric mutation moves the whole picture. A lineage holds at most one, and the root input is moved with it
    before the two are compared.
    """

    name: str
    geometric: bool
    # Whether it draws the whole picture anew, as stylising does.
    redraws: bool = False
    # In how many listed forms it comes, its settings being 0 … forms − 1; 0 if settings are no list.
    forms: int = 0

    @abstractmethod
    def choose(self, chances: np.ndarray) -> np.ndarray:
        """Return one setting per input, from one number in [0, 1) each."""

    @abstractmethod
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        """Return the batch, each input mutated as drawn."""

    @abstractmethod
    def describe(self, setting: int) -> str:
        """Return a setting in words, such as ``rotation -12 degrees``."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what makes this mutation what it is, as plain data: a campaign goes on only with the same ones."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}{', geometric' if self.geometric else ''})"


class ListedMutation(Mutation):
    """Change inputs by parameters of a list, one of which is drawn for each input."""

    unit = ""

    def __init__(self, name: str, parameters: Sequence[Any], *, geometric: bool) -> None:
        if not parameters:
            raise InputError(f"mutation {name!r}: expected at least one parameter")
        self.name = name
        self.geometric = geometric
        self.parameters = tuple(parameters)
        self.forms = len(self.parameters)

    @override
    def choose(self, chances: np.ndarray) -> np.ndarray:
        return choices(chances, len(self.parameters))

    @override
    def describe(self, setting: int) -> str:
        return f"{self.name} {_words(self.parameters[setting])}{self.unit}"

    @override
    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "geometric": self.geometric, "parameters": _plain(self.parameters)}

    def table(self, draw: MutationDraw, like: Tensor) -> Tensor:
        """Return the drawn parameters as floats: ``(batch,)``, or ``(batch, k)`` for tuples of k numbers."""
        chosen = np.asarray(self.parameters, dtype=np.float32)[draw.setting]
        return torch.from_numpy(chosen).to(like.device, non_blocking=True)


class FunctionMutation(Mutation):
    """Change inputs by a function of the user's own, ``(batch, generator) -> batch``.

    All its randomness must come from the generator, and how much it draws may depend on the batch's shape only:
    then what it did to an input can be repeated, and a geometric one moves the root input in the same way.
    """

    def __init__(self, function: MutationFunction, *, geometric: bool, name: str | None = None) -> None:
        found = name or getattr(function, "__name__", None)
        if not callable(function) or not found:
            raise InputError(f"mutation {function!r}: expected a function (batch, generator) -> batch with a name")
        self.name = found
        self.geometric = geometric
        self.function = function

    @override
    def choose(self, chances: np.ndarray) -> np.ndarray:
        seed = int(chances[0] * 2**31) if len(chances) else 0
        return np.full(len(chances), seed, dtype=np.int64)

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        result = torch.empty_like(batch)
        whole = np.stack([draw.setting, draw.batch_size], 1)
        for setting, size in np.unique(whole, axis=0):
            rows = np.flatnonzero((draw.setting == setting) & (draw.batch_size == size))
            while len(rows):
                # Two inputs drawn in the same row of different batches take turns.
                _, first = np.unique(draw.row[rows], return_index=True)
                result[rows[first]] = self._at(batch, rows[first], draw.row[rows[first]], int(setting), int(size))
                rows = np.delete(rows, first)
        return result

    @override
    def describe(self, setting: int) -> str:
        return f"{self.name} with seed {setting}"

    @override
    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "geometric": self.geometric, "function": True}

    def _at(self, batch: Tensor, rows: np.ndarray, places: np.ndarray, seed: int, size: int) -> Tensor:
        """Return inputs ``rows``, mutated in the places they had in a batch of ``size``; others fill the rest."""
        order = np.full(size, rows[0])
        order[places] = rows
        mutated = self.function(batch[torch.from_numpy(order)], seeded(seed, batch.device))
        if not isinstance(mutated, Tensor) or mutated.shape != (size, *batch.shape[1:]):
            found = tuple(mutated.shape) if isinstance(mutated, Tensor) else type(mutated).__name__
            raise InputError(
                f"mutation {self.name!r} returned {found} for a batch of shape {(size, *batch.shape[1:])}: "
                "expected the same shape"
            )
        return mutated[torch.from_numpy(places)].to(batch.dtype)


def mutation(function: MutationFunction, *, geometric: bool = False, name: str | None = None) -> FunctionMutation:
    """Make a mutation of a function ``(batch, generator) -> batch``.

    Args:
        function: see ``FunctionMutation``.
        geometric: whether it moves the whole picture.
        name: by default the function's.

    Examples:
        >>> noise = mutation(lambda images, generator: images + 0.1, name="lighter")
        >>> draw = MutationDraw.of_batch(noise.choose(np.array([0.1, 0.2])))
        >>> noise.apply(torch.zeros(2, 1, 1, 1), draw).flatten().tolist()
        [0.10000000149011612, 0.10000000149011612]
    """
    return FunctionMutation(function, geometric=geometric, name=name)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def _words(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return " ".join(_words(item) for item in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""Read a campaign from its folder alone, without the model: to look at, count and export."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.errors import CampaignError, InputError, NeuralcovError
from neuralcov.core.files import atomic_write
from neuralcov.fuzz.campaign.folder import CampaignFolder, write_errors
from neuralcov.fuzz.campaign.log import FAULT_TYPES
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.faults.pictures import save_input
from neuralcov.fuzz.formats import InputFormat, Pixels, Tokens
from neuralcov.fuzz.mutations import Mutation, MutationDraw
from neuralcov.fuzz.search.guides import guide_of

PARTS = ("faults", "queue", "seeds")


@dataclass(frozen=True, eq=False)
class StoredCampaign:
    """Hold a campaign as it lies in its folder."""

    folder: CampaignFolder
    config: dict[str, Any]
    input_format: InputFormat
    state: CampaignState
    mutations: Sequence[Mutation]

    @property
    def faults(self) -> list[Fault]:
        """Return what was found wrong."""
        return self.state.faults

    def export(self, part: str, to: str | os.PathLike[str], *, limit: int | None = None) -> int:
        """Write faults, the queue or the seeds as files a person can open, with an index; return how many."""
        if part not in PARTS:
            raise InputError(f"export of {part!r}: expected {', '.join(PARTS)}")
        target = Path(to) / part
        with write_errors(target):
            target.mkdir(parents=True, exist_ok=True)
            with atomic_write(target / "index.jsonl") as index:
                count = 0
                for stem, stored, story in islice(self._entries(part), limit):
                    path = save_input(target, stem, stored, self.input_format)
                    index.write((json.dumps({"file": path.name, **story}) + "\n").encode())
                    count += 1
        return count

    def _entries(self, part: str) -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
        if part == "faults":
            for fault in self.faults:
                yield fault.stem, fault.input, fault.to_json(self.mutations)
            return
        corpus = self.state.corpus
        rows: Iterable[int] = range(corpus.roots, len(corpus)) if part == "queue" else range(corpus.roots)
        for row in rows:
            entry = corpus.entries[row]
            root, predicted = int(entry["root"]), int(entry["prediction"])
            story: dict[str, Any] = {"root": root, "label": int(self.state.labels[root]), "predicted": predicted}
            if part == "queue":
                told = (self.mutations[step.mutation].describe(step.setting) for step in corpus.steps(row))
                story |= {"entry": row, "wave": int(entry["wave"]), "mutations": list(told)}
            stem = f"{row:06d}-{story['label']}-as-{predicted}"
            yield stem, corpus.inputs(slice(row, row + 1))[0], story


# What plain data of another form than a campaign's ends in.
_DAMAGE = (TypeError, ValueError, AttributeError, IndexError, OverflowError, RuntimeError, RecursionError)


def open_campaign(folder: str | os.PathLike[str]) -> StoredCampaign:
    """Read a campaign; one that is still running is read up to its last complete wave."""
    place = CampaignFolder(folder)
    config, seeds = place.config(), place.seeds()
    try:
        mutations = [StoredMutation(identity) for identity in config["mutations"]]
        checks = [name for name in config["checks"] if name != "second model"]
        if not all(isinstance(name, str) for name in checks):
            raise TypeError(f"checks are {checks!r}")
        settings = place.settings()
        state = CampaignState(
            torch.from_numpy(np.array(seeds["inputs"])),
            seeds["labels"],
            seeds["predictions"],
            seeds["usable"].astype(bool),
            geometric=np.array([mutation.geometric for mutation in mutations]),
            forms=[mutation.forms for mutation in mutations],
            fault_types=(*FAULT_TYPES, *checks),
            tries=settings.tries,
            wave=settings.wave,
            margins=seeds.get("margins"),
            rivals=seeds.get("rivals"),
            one_run=guide_of(settings).one_run,
            max_per_group=settings.max_per_group,
            moves_comparisons=settings.compared == "moved",
        )
        input_format = _input_format(config["space"], place)
        for record in place.records():
            state.apply(record)
    except NeuralcovError:
        raise
    except KeyError as error:
        raise CampaignError(f"{place.path}: the configuration lacks {error}; was it changed by hand?") from error
    except _DAMAGE as error:
        raise CampaignError(
            f"{place.path}: configuration, seeds and log do not go together ({error}); restore them from a copy"
        ) from error
    return StoredCampaign(place, config, input_format, state, mutations)


class StoredMutation(Mutation):
    """Describe a mutation of a stored campaign; applying it is an error."""

    def __init__(self, identity: dict[str, Any]) -> None:
        self.name = identity["name"]
        if not isinstance(self.name, str):
            raise TypeError(f"a mutation is called {self.name!r}")
        if not isinstance(identity["geometric"], bool):
            raise TypeError(f"geometric is {identity['geometric']!r}")
        self.geometric = identity["geometric"]
        self.forms = len(identity.get("parameters") or ())
        self._identity = identity

    @override
    def choose(self, chances: np.ndarray) -> np.ndarray:
        raise self._unknown()

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        raise self._unknown()

    @override
    def describe(self, setting: int) -> str:
        parameters = self._identity.get("parameters")
        if parameters is None:
            return f"{self.name} with key {setting}"
        value = parameters[setting]
        words = " ".join(map(str, value)) if isinstance(value, list) else f"{value:.4g}"
        return f"{self.name} {words}"

    @override
    def identity(self) -> dict[str, Any]:
        return self._identity

    def _unknown(self) -> CampaignError:
        return CampaignError(f"the mutation {self.name!r} is known by name only: build the Fuzzer to apply it")


def _input_format(identity: dict[str, Any], place: CampaignFolder) -> InputFormat:
    if identity["kind"] == "pixels":
        return Pixels(identity["levels"])
    words = place.path / "words.txt"
    return Tokens(identity["padding"], words.read_text(encoding="utf-8").split("\n") if words.is_file() else None)

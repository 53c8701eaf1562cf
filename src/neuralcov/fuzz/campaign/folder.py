"""A campaign's folder: configuration, root inputs, the log of waves, coverage, faults and figures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import BaseFileLock
from safetensors import SafetensorError
from safetensors.numpy import load

from neuralcov.core.container import SEEDS, opened, write
from neuralcov.core.errors import CampaignError, ForeignFileError, InputError, StateFileError
from neuralcov.core.files import atomic_write, local_path, lock_file, write_bytes, write_json, write_text
from neuralcov.coverage.coverage import Coverage
from neuralcov.fuzz.campaign.log import Log, WaveRecord
from neuralcov.fuzz.settings import FuzzSettings

# Schemas of config.json: 1, "rules" with the validity rule among them; 2, "settings", and "validity" beside them.
SCHEMA = 2
# Settings that campaigns of schema 1 kept in the notes of the command that started them, if anywhere.
_IN_ORDER = ("alpha", "beta", "checkpoint", "pictures")


class CampaignFolder:
    """Know what lies where in a campaign's folder.

    ``config.json`` says what was asked for and is written last when a campaign starts; ``seeds.safetensors`` holds
    the root inputs, ``words.txt`` the vocabulary of texts; ``queue.log`` a pack per wave; ``coverage/WAVE.ncov`` the
    state before that wave; ``faults/`` pictures and stories of faults; ``stats.jsonl`` how it went;
    ``summary.json`` what came of it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.log = Log(self.path / "queue.log")
        self._lock: BaseFileLock | None = None

    @property
    def faults(self) -> Path:
        """Return where pictures and stories of faults lie."""
        return self.path / "faults"

    @property
    def exists(self) -> bool:
        """Return whether a campaign has begun here."""
        return os.path.isfile(self.path / "config.json")  # where nothing may be read, nothing has begun

    def make(self) -> None:
        """Make the folder, before anything is computed that could not be kept."""
        local_path(self.path)  # refuses a URL
        with write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def create(
        self,
        config: dict[str, Any],
        seeds: dict[str, np.ndarray],
        coverage: Coverage | None,
        words: Sequence[str] | None = None,
    ) -> None:
        """Write what a campaign begins with; config.json, by which it exists, comes last."""
        with write_errors(self.path):
            self.faults.mkdir(parents=True, exist_ok=True)
            for _, path in self._coverage_files():
                path.unlink()  # of a start that was killed
            if coverage is not None:
                self.save_coverage(coverage, 0)
            with atomic_write(self.path / "seeds.safetensors") as file:
                write(file, SEEDS, {}, {name: torch.from_numpy(array) for name, array in seeds.items()})
            write_bytes(self.log.path, b"")
            if words is not None:
                write_text(self.path / "words.txt", "\n".join(words))
            write_text(self.path / "stats.jsonl", "")
        self.write_json("config.json", {"schema": SCHEMA, **config})

    def require_new(self) -> None:
        """Refuse a folder in which a campaign has begun."""
        if self.exists:
            raise CampaignError(
                f"{self.path}: holds a campaign already; resume it (Fuzzer.resume(), neuralcov fuzz resume), or name "
                "another folder"
            )

    def config(self) -> dict[str, Any]:
        """Return what was asked for, in the form of the newest schema."""
        if not self.exists:
            raise CampaignError(f"{self.path}: no campaign has begun here; there is no config.json")
        try:
            found: dict[str, Any] = json.loads((self.path / "config.json").read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise CampaignError(f"{self.path}/config.json: damaged ({error})") from error
        notes = found.get("notes", {}) if isinstance(found, dict) else None
        if not isinstance(notes, dict) or not isinstance(notes.get("order", {}), dict):
            raise CampaignError(f"{self.path}/config.json: damaged (not what a campaign writes); take it from a copy")
        schema = found.get("schema")
        if schema not in range(1, SCHEMA + 1):
            raise CampaignError(
                f"{self.path}: a campaign of schema {schema}, this neuralcov reads up to {SCHEMA}; use the version of "
                "neuralcov that wrote it"
            )
        try:
            return _from_schema_1(found) if schema == 1 and "rules" in found else found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CampaignError(f"{self.path}/config.json: damaged ({error!r}); take it from a copy") from error

    def settings(self) -> FuzzSettings:
        """Return how the campaign searches."""
        try:
            return FuzzSettings.from_json(self.config()["settings"])
        except KeyError as error:
            raise CampaignError(f"{self.path}: the configuration lacks {error}; was it changed by hand?") from error
        except (TypeError, InputError) as error:
            raise CampaignError(f"{self.path}/config.json: settings cannot be read ({error})") from error

    def seeds(self) -> dict[str, np.ndarray]:
        """Return the root inputs, their labels, predictions, and which serve as seeds."""
        path = self.path / "seeds.safetensors"
        try:
            with opened(path, SEEDS) as file:
                return {name: file.read(name).numpy() for name in file.tensors}
        except ForeignFileError:
            return _plain_seeds(path)  # the first campaigns kept them without a header
        except StateFileError as error:
            raise CampaignError(f"{error}; restore it from a copy") from error

    def lock(self) -> None:
        """Keep other processes from going on with the same campaign; a kill frees it again."""
        self.make()
        try:
            with write_errors(self.path / "lock"):
                self._lock = lock_file(self.path / "lock", wait=False)
        except BlockingIOError as error:
            raise CampaignError(f"{self.path}: another process is at work on this campaign; wait for it") from error

    def unlock(self) -> None:
        """Let other processes in."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def records(self) -> Iterator[WaveRecord]:
        """Yield the waves of the log, in order."""
        if not self.log.path.is_file():
            raise CampaignError(f"{self.log.path}: is missing; restore it from a copy")
        for wave, content in enumerate(self.log.read()):
            record = WaveRecord.from_bytes(content)
            if record.wave != wave:
                raise CampaignError(
                    f"{self.log.path}: wave {record.wave} stands where wave {wave} belongs; restore it from a copy"
                )
            yield record

    def save_coverage(self, coverage: Coverage, wave: int) -> None:
        """Save the coverage state before a wave, and drop older ones."""
        target = self._coverage_path(wave)
        coverage.save(target, end_run=False)
        for wave_before, path in self._coverage_files():
            if wave_before < wave:
                with suppress(OSError):
                    path.unlink()

    def latest_coverage(self) -> tuple[int, Path] | None:
        """Return the newest state saved, and the wave it stands before."""
        found = self._coverage_files()
        return found[-1] if found else None

    def require_log_up_to(self, wave: int, waves: int) -> None:
        """Refuse a log with fewer waves than the saved coverage has seen."""
        if waves < wave:
            raise CampaignError(
                f"{self.log.path}: ends after {waves} waves, but {self._coverage_path(wave).name} has seen {wave}; "
                "restore the log from a copy, or delete the folder coverage to go on from where the log ends"
            )

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file, which is then there as a whole or not at all."""
        with write_errors(self.path / name):
            write_json(self.path / name, content)

    def repair(self) -> int:
        """Cut off what a kill left half-written; return how many bytes of the log that was."""
        stats = self.path / "stats.jsonl"
        if stats.is_file():
            content = stats.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                write_bytes(stats, content[:whole])
        return self.log.repair()

    def stats(self) -> list[dict[str, Any]]:
        """Return every line of figures."""
        path = self.path / "stats.jsonl"
        lines = path.read_bytes().split(b"\n") if path.is_file() else []
        return [self._figures(number, line) for number, line in enumerate(lines[:-1], start=1)]

    def _figures(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise CampaignError(f"{self.path}/stats.jsonl: line {number} is damaged; remove that line")
        return found

    def _coverage_path(self, wave: int) -> Path:
        return self.path / "coverage" / f"{wave:08d}.ncov"

    def _coverage_files(self) -> list[tuple[int, Path]]:
        files = (self.path / "coverage").glob("*.ncov")
        # Files of other names are somebody else's.
        return sorted((int(path.stem), path) for path in files if re.fullmatch("[0-9]{8,18}", path.stem))


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn what the system has against writing into one sentence."""
    try:
        yield
    except BlockingIOError:
        raise  # a lock that somebody holds: the place itself is fine
    except OSError as error:
        raise CampaignError(
            f"{path}: cannot be written: {error.strerror or error}; make it writable or name another place"
        ) from error


def _from_schema_1(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of schema 1 in the form of schema 2.

    What such a campaign does not tell is left out of its settings, and so not compared.
    """
    rules = dict(config["rules"])
    rules.pop("refresh", None)  # a rule of the first campaigns, now an argument of LVC
    validity = rules.pop("validity")
    order = config.get("notes", {}).get("order", {})
    told = {name: order[name] for name in _IN_ORDER if name in order}
    shares = {name: validity[name] for name in ("alpha", "beta") if name in validity}
    rest = {name: value for name, value in config.items() if name != "rules"}
    return {**rest, "settings": {**rules, **told, **shares}, "validity": validity}


def _plain_seeds(path: Path) -> dict[str, np.ndarray]:
    try:
        return dict(load(path.read_bytes()))
    except (OSError, SafetensorError) as error:
        raise CampaignError(f"{path}: cannot be read ({error})") from error

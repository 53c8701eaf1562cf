"""What one pass over the training data leaves behind, shared by all criteria that learn from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.container import StoredTensor
from neuralcov.core.criterion import Criterion
from neuralcov.core.digests import tensor_digest
from neuralcov.core.errors import CalibrationError
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.core.old_identity import old_fingerprint
from neuralcov.core.records import flatten, identity_of, stored_name, unflatten
from neuralcov.core.templates import require_form
from neuralcov.statistics.older_calibrations import as_plain_data
from neuralcov.statistics.statistic import (
    BESIDE,
    INSTEAD,
    AnyStatistic,
    Gathered,
    Statistic,
    in_order,
    joined,
    statistic_stored_as,
)

# Identities list statistics in this order, and others behind them.
_ORDER = ("ranges", "moments", "sample", "traces", "paths", "folds")
# Files and identities know what was gathered of held-out inputs by these names.
_HELD_OUT = {"moments": "held_out", "sample": "held_out_sample"}

Parts = Mapping[AnyStatistic, Any]


@dataclass(frozen=True, eq=False)
class Calibration:
    """What training data taught: ``calibration[Ranges()]`` is what the statistic ``Ranges()`` gathered.

    Args:
        names: the layers.
        widths: their neurons.
        seen: how many inputs took part.
        excluded: how many had NaN or infinite outputs.
        of_training: what statistics gathered of the training inputs.
        of_held_out: what some of them gathered of training inputs that were kept apart; empty where none were.
        holding: whether inputs were held out, while it is learnt.
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    seen: int = 0
    excluded: int = 0
    of_training: Parts = field(default_factory=dict)
    of_held_out: Parts = field(default_factory=dict)
    holding: bool = False

    @classmethod
    @ordinary_tensors
    def empty(cls, layout: Layout, criteria: Sequence[Criterion[Any]]) -> Calibration:
        """Return a calibration for what some criteria learn from, which has seen nothing."""
        wanted = []
        for criterion in criteria:
            for statistic in in_order(criterion.learns):
                statistic.check(layout, criterion.name)
                wanted.append(statistic)
        gathered = {statistic: statistic.init(layout) for statistic in joined(wanted)}
        return cls(tuple(layout), tuple(layout.widths.values()), of_training=gathered)

    def __getitem__(self, statistic: Statistic[Gathered]) -> Gathered:
        found = self.find(statistic)
        if found is None:
            held = ", ".join(each.label for each in in_order(self.of_training)) or "nothing"
            raise CalibrationError(f"the calibration holds no {statistic.label}; it holds {held}")
        return found

    def find(self, statistic: Statistic[Gathered]) -> Gathered | None:
        """Return what a statistic gathered, or ``None`` if nobody asked for it."""
        return _find(self.of_training, statistic)

    def held_out(self, statistic: Statistic[Gathered]) -> Gathered | None:
        """Return what a statistic gathered of held-out inputs, or ``None`` where none were held out."""
        return _find(self.of_held_out, statistic)

    def layout(self, device: torch.device | str = "cpu") -> Layout:
        """Return the layers this was learnt on."""
        return Layout(dict(zip(self.names, self.widths, strict=True)), device)

    @ordinary_tensors
    def observe(self, batch: Activations) -> Calibration:
        """Return the calibration after a batch. Overwrites this one, which nobody else holds."""
        learning = {s: part for s, part in self.of_training.items() if not (self.holding and s.held_out == INSTEAD)}
        found = {**self.of_training, **_observed(learning, batch)}
        return replace(self, seen=self.seen + batch.size, of_training=found)

    @ordinary_tensors
    def hold_out(self, batch: Activations) -> Calibration:
        """Return the calibration after a batch of held-out training inputs. Overwrites this one."""
        training, beside = dict(self.of_training), dict(self.of_held_out)
        instead = [statistic for statistic in training if statistic.held_out == INSTEAD]
        if not self.holding:
            beside = {s: s.init(batch.layout) for s in training if s.held_out == BESIDE}
            # Those of the training inputs serve only where nothing is held out.
            training |= {statistic: statistic.init(batch.layout) for statistic in instead}
        training |= _observed({statistic: training[statistic] for statistic in instead}, batch)
        return replace(self, of_training=training, of_held_out=_observed(beside, batch), holding=True)

    @ordinary_tensors
    def finished(self, *, excluded: int = 0) -> Calibration:
        """Return the calibration after the last batch, of whose inputs some were excluded."""
        if excluded == self.seen:
            raise CalibrationError(f"calibration saw no input whose outputs are finite, among {excluded}")
        return replace(
            self,
            seen=self.seen - excluded,
            excluded=excluded,
            of_training={s: s.finish(gathered) for s, gathered in self.of_training.items()},
            of_held_out={s: s.finish(gathered) for s, gathered in self.of_held_out.items()},
        )

    def to(self, device: torch.device | str) -> Calibration:
        """Return the same calibration on another device, traces as far as their budget goes."""
        return replace(
            self,
            of_training={s: s.move(gathered, device) for s, gathered in self.of_training.items()},
            of_held_out={s: s.move(gathered, device) for s, gathered in self.of_held_out.items()},
        )

    # Knowing it again

    @cached_property
    def digests(self) -> dict[str, str]:
        """Return SHA-256 of the tensors, by their path in files, as far as they are known."""
        return {}

    def identity(self, learns: Iterable[AnyStatistic]) -> str:
        """Return the SHA-256 of what a criterion that ``learns`` from these statistics was taught.

        It is that of the tensors' digests, which files keep, so that a calibration that was loaded is not read again.
        Where traces are kept, and how many of them in memory, is no part of it.
        """
        wanted = sorted(learns, key=_place)
        parts = {self._path(own): self.of_training[own] for own in map(self._own, wanted) if own is not None}
        for statistic in wanted:
            found = self.held_out(statistic)
            # Moments have always said that nothing was held out.
            if found is not None or statistic.declared == "moments":
                parts[_held_out_path(statistic)] = found
        return identity_of({"names": self.names, "widths": self.widths, **parts}, self._digest)

    def old_identity(self, learns: Iterable[AnyStatistic]) -> str:
        """Return the SHA-256 that files of schema 1 tell a calibration by."""
        wanted = sorted(learns, key=_place)
        parts = tuple(self.find(statistic) for statistic in wanted if statistic.declared != "folds")
        extra = next((self.held_out(statistic) for statistic in wanted if statistic.declared == "moments"), None)
        return old_fingerprint((self.names, self.widths, parts, extra))

    def _own(self, wanted: AnyStatistic) -> AnyStatistic | None:
        """Return the statistic here that serves a wanted one."""
        return next((each for each in self.of_training if each.serves(wanted)), None)

    def _path(self, statistic: AnyStatistic) -> str:
        """Return under which path files keep what a statistic gathered."""
        if statistic.label == statistic.declared:
            return statistic.declared
        alike = [each for each in in_order(self.of_training) if each.declared == statistic.declared]
        return f"{statistic.declared}.{alike.index(statistic)}"

    def _digest(self, path: str, tensor: Tensor) -> str:
        if path not in self.digests:
            self.digests[path] = tensor_digest(tensor)
        return self.digests[path]

    # Files

    def _entries(self) -> Iterator[tuple[AnyStatistic, bool, str, Any]]:
        for statistic, gathered in self.of_training.items():
            yield statistic, False, self._path(statistic), gathered
        for statistic, gathered in self.of_held_out.items():
            yield statistic, True, _held_out_path(statistic), gathered

    def to_json(self, place: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """Put every tensor into ``tensors``, by paths that begin with ``place``; return the rest as plain data."""
        entries = [
            {
                "name": statistic.declared,
                "settings": statistic.settings,
                "held_out": held_out,
                "gathered": flatten(gathered, f"{place}.{path}", tensors, stored_name),
            }
            for statistic, held_out, path, gathered in self._entries()
        ]
        return {
            "names": list(self.names),
            "widths": list(self.widths),
            "seen": self.seen,
            "excluded": self.excluded,
            "statistics": entries,
        }

    @classmethod
    def from_json(
        cls, stored: Mapping[str, Any], tensors: Mapping[str, Tensor], known: Mapping[str, StoredTensor] | None
    ) -> Calibration:
        """Rebuild what ``to_json`` took apart, or a calibration of earlier files.

        Args:
            stored: the plain data.
            tensors: read when they are asked for.
            known: what the file says of its tensors, to check every form before any is read; ``None`` for files of
                schema 1, which do not say enough.
        """
        plain = as_plain_data(stored)
        names, widths = tuple(map(str, plain["names"])), tuple(int(width) for width in plain["widths"])
        bare = Layout(dict(zip(names, widths, strict=True)), "meta")
        parts: tuple[dict[AnyStatistic, Any], dict[AnyStatistic, Any]] = ({}, {})
        for entry in plain["statistics"]:
            statistic = statistic_stored_as(str(entry["name"]), {k: _thaw(v) for k, v in entry["settings"].items()})
            if known is not None:
                place = ("held-out " if entry["held_out"] else "") + statistic.label
                require_form(entry["gathered"], *statistic.template(bare), known, f"calibration: {place}")
            parts[bool(entry["held_out"])][statistic] = unflatten(entry["gathered"], tensors)
        return cls(names, widths, int(plain["seen"]), int(plain["excluded"]), *parts)


def _find(parts: Parts, wanted: Statistic[Gathered]) -> Gathered | None:
    return next((gathered for statistic, gathered in parts.items() if statistic.serves(wanted)), None)


def _observed(parts: Parts, batch: Activations) -> dict[AnyStatistic, Any]:
    return {statistic: statistic.observe(gathered, batch) for statistic, gathered in parts.items()}


def _place(statistic: AnyStatistic) -> tuple[int, str]:
    """Return where a statistic stands in identities."""
    name = statistic.declared
    return _ORDER.index(name) if name in _ORDER else len(_ORDER), statistic.label


def _held_out_path(statistic: AnyStatistic) -> str:
    return _HELD_OUT.get(statistic.declared, f"held_out_{statistic.declared}")


def _thaw(value: Any) -> Any:
    """Return settings with tuples, which JSON does not have."""
    return tuple(_thaw(item) for item in value) if isinstance(value, list) else value

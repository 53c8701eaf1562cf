"""One criterion of a state file: known by name and hyper-parameters, checked against the layers, and then read.

States of an earlier definition in files of schema 1 have the form of that definition: they are read, brought into
today's, and checked then. Such files have no checksums, and sizes are those of the tensors that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from neuralcov.core.arguments import with_tuples
from neuralcov.core.container import Container, StoredTensor
from neuralcov.core.errors import HyperParameterError, NeuralcovError
from neuralcov.core.find_criterion import criterion_class, criterion_stored_as
from neuralcov.core.layout import Layout
from neuralcov.core.records import flatten, unflatten
from neuralcov.core.templates import require_form
from neuralcov.coverage.collection import AnyCriterion, plain_keys
from neuralcov.coverage.file_tensors import FileTensors


@dataclass(frozen=True, eq=False)
class StoredCriterion:
    """Hold one criterion of a state file, known by name and hyper-parameters, its tensors not read yet."""

    criterion: AnyCriterion
    key: str
    definition: int
    calibration: str | None
    learnt: Any
    state: Any

    @classmethod
    def of(cls, entry: Mapping[str, Any], file: Container) -> StoredCriterion:
        """Find the criterion that an entry of the header names."""
        name = str(entry["name"])
        found = criterion_stored_as(name) if file.schema > 1 else criterion_class(name)
        if found is None:
            raise file.error(
                f"holds the criterion {name!r}, which no installed package defines: install or import the one that does"
            )
        definition = entry["definition"]
        if type(definition) is not int or not 1 <= definition <= found.definition:
            raise file.error(
                f"{name} was measured under definition {definition}, this neuralcov knows up to {found.definition}: "
                "upgrade neuralcov"
            )
        try:
            criterion = found(**{parameter: with_tuples(value) for parameter, value in entry["parameters"].items()})
        except HyperParameterError as error:
            raise file.error(str(error)) from error
        calibration = entry["calibration"]
        return cls(
            criterion,
            plain_keys([criterion])[0],
            definition,
            None if calibration is None else str(calibration),
            entry["learnt"],
            entry["state"],
        )

    def require_form(self, file: Container, layout: Layout) -> None:
        """Refuse tensors that the criterion would not have on these layers; nothing is read for that."""
        if not self._of_old_form(file):
            self._require(self.learnt, self.state, file.tensors, FileTensors(file, file.empty), file, layout)

    def _require(
        self,
        learnt: Any,
        state: Any,
        tensors: Mapping[str, StoredTensor],
        empty_tensors: Mapping[str, Tensor],
        file: Container,
        layout: Layout,
    ) -> None:
        """Refuse what was learnt, and a state, that do not have the forms they have on these layers."""
        bare = Layout(layout.widths, "meta")
        forms = self.criterion.learnt_template(bare)
        if not self.criterion.learns and learnt != {"value": None}:
            raise file.error(f"{self.criterion.name} learns nothing, and the file says what it learnt")
        if forms is not None and learnt != {"value": None}:
            require_form(learnt, *forms, tensors, f"{self.key}.learnt")
        try:
            criterion = replace(self.criterion, learnt=unflatten(learnt, empty_tensors))
            empty, form = criterion.init(bare), criterion.template(bare)
        except NeuralcovError:
            raise
        except RuntimeError as error:
            raise file.error(f"{self.criterion.name} cannot be kept of such layers ({error})") from error
        for older in criterion.older_forms(bare):
            if state.get("record") == older.declared:
                form = empty = older
        require_form(state, form, empty, tensors, self.key)

    def build(self, file: Container, tensors: Mapping[str, Tensor], layout: Layout) -> tuple[AnyCriterion, Any]:
        """Read the criterion with what it learnt, and its state."""
        learnt, state = unflatten(self.learnt, tensors), unflatten(self.state, tensors)
        learnt, state = self.criterion.upgrade(learnt, state, layout)
        if self._of_old_form(file):
            parts: dict[str, Tensor] = {}
            forms = flatten(learnt, "learnt", parts), flatten(state, "state", parts)
            stored = {name: StoredTensor(part.dtype, tuple(part.shape), 0, 0, None) for name, part in parts.items()}
            self._require(*forms, stored, {name: part.to("meta") for name, part in parts.items()}, file, layout)
        return replace(self.criterion, learnt=learnt), state

    def _of_old_form(self, file: Container) -> bool:
        """Return whether it has the form of an earlier definition, and today's only once it is built."""
        return file.schema == 1 and self.definition < self.criterion.definition

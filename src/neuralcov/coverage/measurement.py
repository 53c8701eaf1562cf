"""All that one coverage is made of: criteria with their states, the tap, what calibration learnt, where both come from.

``Coverage`` holds one measurement. The files beside this one work on it: they read
batches for it, calibrate it, keep, merge and save it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from neuralcov.core.counted import agreeing, counted
from neuralcov.core.criterion import MERGE_EXACT
from neuralcov.core.errors import CoverageWarning
from neuralcov.core.findings import Finding, Unmeasured
from neuralcov.core.layout import Layout
from neuralcov.coverage.collection import AnyCriterion, CriterionCollection
from neuralcov.coverage.provenance import Origin, Provenance
from neuralcov.coverage.sections import Assessed, TrainingMap
from neuralcov.coverage.seen import SeenInputs
from neuralcov.coverage.suite_counts import SuiteCounts
from neuralcov.results.references import ReferenceCurve
from neuralcov.results.sanity import SuiteFacts
from neuralcov.results.sections import Reference
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.statistic import AnyStatistic
from neuralcov.tap import Tap
from neuralcov.tap.listening import Heard

# In place of a criterion's name, in findings about layers that were left out.
_LAYERS = "layers"

_MERGED = (
    "{} parts measured apart were merged; its value depends on the order of inputs: one run over all gives another"
)

OldIdentity = Callable[[Iterable[AnyStatistic]], str]


class Learnt:
    """Hold what calibration taught the criteria of one coverage, and the ids that files know it by.

    Args:
        calibration: what was learnt, ``None`` before calibration and where a state was loaded without it.
        old_identity: how files of schema 1 name it, where it comes from one.
    """

    def __init__(self, calibration: Calibration | None = None, old_identity: OldIdentity | None = None) -> None:
        self.calibration = calibration
        self.training: SuiteCounts | None = None
        """What was counted of the training data, where that is known."""
        self.map: TrainingMap | None = None
        """The main directions of training data, where calibration had some."""
        self.references: Mapping[str, ReferenceCurve] = {}
        """By criterion, what held-out training inputs show, where some were held out."""
        self._old_identity = old_identity
        self._ids: dict[str, str | None] | None = None

    @classmethod
    def known_by(cls, ids: Mapping[str, str | None]) -> Learnt:
        """Return what was learnt elsewhere and is known here by its ids alone."""
        learnt = cls()
        learnt._ids = dict(ids)
        return learnt

    def ids(self, criteria: Sequence[AnyCriterion]) -> dict[str, str | None]:
        """Return, by criterion, the SHA-256 of what it learnt; ``None`` for one that learnt nothing."""
        if self._ids is None:
            calibration = self.calibration
            self._ids = {
                criterion.name: calibration.identity(criterion.learns) if calibration and criterion.learns else None
                for criterion in criteria
            }
        return dict(self._ids)

    def schema_1_id(self, criterion: AnyCriterion) -> str | None:
        """Return the id of a criterion's calibration as files of schema 1 have it."""
        if self.calibration is None or not criterion.learns:
            return None
        return (self._old_identity or self.calibration.old_identity)(criterion.learns)


class Measurement:
    """Hold all that one coverage is made of.

    Args:
        collection: criteria and their states.
        tap: what runs the model, ``None`` where somebody else computes the activations.
        preprocessing: what a user says was done to the inputs.
    """

    def __init__(self, collection: CriterionCollection, tap: Tap | None, preprocessing: Any = None) -> None:
        self.collection = collection
        self.tap = tap
        self.provenance = Provenance(None if tap is None else tap.model, preprocessing)
        self.learnt = Learnt()
        self.loaded_rows: Mapping[str, Any] | None = None
        """The order of every layer's rows that a file told, where there is no model."""
        self.warned: set[str] = set()
        """The warnings that were given already."""
        self.heard = Heard()
        """What was heard of passes that others made."""
        self.assessed = Assessed()
        """What the last ``assess`` told; see ``last_assessed``."""
        self._unmeasured: tuple[Layout | None, Unmeasured] | None = None

    def fork(self) -> Measurement:
        """Copy this measurement; from here on both are independent."""
        twin = copy.copy(self)
        twin.collection = self.collection.fork()
        twin.tap = None if self.tap is None else self.tap.fork()
        twin.provenance = self.provenance.copy()
        twin.warned, twin.heard = set(self.warned), copy.deepcopy(self.heard)
        twin.assessed = replace(self.last_assessed, version=twin.collection.version)
        return twin

    def clear(self) -> None:
        """Drop all that was observed and keep what was learnt."""
        self.collection.adopt(None)
        self.collection.definitions = self.collection.own_definitions()
        self.collection.seen = self.seen.emptied()
        self.provenance.states = Origin()
        self.heard = Heard()

    @property
    def last_assessed(self) -> Assessed:
        """Return what the last ``assess`` told; nothing once anything else was observed, merged or restored."""
        return self.assessed if self.assessed.version == self.collection.version else Assessed()

    @property
    def seen(self) -> SeenInputs:
        """Return which inputs were observed."""
        assert self.collection.seen is not None
        return self.collection.seen

    @property
    def device(self) -> torch.device:
        """Return where inputs go: where the model is, or without one where statistics live."""
        if self.tap is not None:
            return self.tap.device
        return torch.device("cpu") if self.collection.layout is None else self.collection.layout.device

    @property
    def rows(self) -> Mapping[str, Any] | None:
        """Return the order of every layer's rows, as files keep it."""
        return self.loaded_rows if self.tap is None else self.tap.known_rows.to_json()

    def learnt_ids(self) -> dict[str, str | None]:
        """Return, by criterion, the id of what it learnt."""
        return self.learnt.ids(self.collection.criteria)

    def has_learnt(self, name: str, identity: str | None, other: Measurement | None = None) -> bool:
        """Return whether what a criterion learnt is known by this id, today or in files of schema 1."""
        ours = self.learnt_ids()[name]
        if ours == identity or ours is None or identity is None:
            return ours == identity
        criterion = self.collection.criteria[self.collection.names.index(name)]
        if identity == self.learnt.schema_1_id(criterion):
            return True
        return other is not None and ours == other.learnt.schema_1_id(criterion)

    def describe(self) -> dict[str, Any]:
        """Return where the measurement comes from, as files keep it."""
        told = self.provenance.describe(self.device, empty=self.collection.empty)
        return told if self.procedure is None else {**told, "procedure": self.procedure}

    @property
    def procedure(self) -> Mapping[str, Any] | None:
        """Return how these inputs were measured, where that was noted and no others were observed since."""
        noted = self.provenance.states.procedure
        return noted if noted is not None and noted.get("inputs") == self.collection.inputs else None

    def model_id(self) -> str | None:
        """Return the SHA-256 of the weights that the inputs were measured on, if a file told it or it was made."""
        return self.provenance.states.id

    def unmeasured(self) -> Unmeasured | None:
        """Return the share of the model's parameters that belong to no measured layer; ``None`` without a model."""
        if self.tap is None:
            return None
        layout = self.collection.layout
        if self._unmeasured is None or self._unmeasured[0] is not layout:
            self._unmeasured = (layout, self.tap.unmeasured(layout))
        return self._unmeasured[1]

    def facts(self) -> SuiteFacts:
        """Return what was counted of the inputs, and of training data, as plain data."""
        seen, training = self.seen, self.learnt.training
        counts = seen.counts.settle()
        # Classes that were read off what look like probabilities are none.
        doubtful = self.tap is not None and bool(self.tap.output_findings())
        return replace(
            _facts(counts, self.collection.inputs, doubtful=doubtful),
            training=None if training is None else _facts(training, 0, doubtful=doubtful),
            duplicates=seen.sketch.repeated,
            alike=counts.likeness.repeated,
            moving=self.provenance.moving,
        )

    def references(self) -> dict[str, Reference]:
        """Return, by criterion, the value for as many held-out training inputs; nothing as long as no input came."""
        if self.collection.empty:
            return {}
        inputs, known = self.collection.inputs, self.learnt.references
        found = {
            name: known[name].at(inputs)
            for name, definition in self.collection.definitions.items()
            if name in known and known[name].definition == definition
        }
        # Beside fewer held-out inputs stand as many of the suite's, where a state tells what these show.
        fewer = {reference.inputs for reference in found.values() if reference.inputs < inputs}
        drawn = {size: self.collection.rarefied(size) for size in fewer}
        return {
            name: replace(one, beside=drawn[one.inputs][name].value) if name in drawn.get(one.inputs, {}) else one
            for name, one in found.items()
        }

    def findings(self) -> tuple[Finding, ...]:
        """List what was left out of the measurement, and what to bear in mind when reading it."""
        found = []
        excluded = 0 if self.learnt.calibration is None else self.learnt.calibration.excluded
        unread = "" if self.tap is None else self.tap.known_rows.sentence
        if unread:
            found.append(Finding(_LAYERS, unread))
        if excluded:
            were = agreeing(excluded, "was", "were")
            said = f"{counted(excluded, 'training input')} with NaN or infinite outputs {were} left out"
            found.append(Finding("calibration", said, excluded))
        if self.seen.shared:
            were = agreeing(self.seen.shared, "was", "were")
            twice = f"{counted(self.seen.shared, 'input')} (an estimate) {were} in more than one of the suites merged"
            found.append(Finding("inputs", twice, self.seen.shared))
        parts = self.provenance.states.parts
        apart = [c.name for c in self.collection.criteria if parts > 1 and MERGE_EXACT not in c.promises]
        found += [Finding(name, _MERGED.format(parts)) for name in apart]
        unmeasured = None if self.collection.layout is None else self.unmeasured()
        if unmeasured is not None and unmeasured.noteworthy:
            found.append(Finding(_LAYERS, str(unmeasured)))
        of_tap = () if self.tap is None else self.tap.findings()
        return (*found, *of_tap, *self.heard.findings(), *self.collection.findings())

    def warn(self, *, of_outputs: bool = False) -> None:
        """Warn of every finding once; of what outputs look like only once a whole data set was seen."""
        # Of what outputs look like only if a criterion reads classes off them.
        read = "predictions" in self.collection.needs or self.collection.wants_predictions
        of_tap = self.tap.output_findings() if of_outputs and self.tap is not None and read else ()
        said = "" if self.tap is None else self.tap.known_rows.sentence
        for finding in (*of_tap, *self.findings()):
            if finding.sentence == said:
                continue  # when it was found
            key = f"{finding.criterion}: {finding.sentence.lstrip('0123456789')}"
            if key not in self.warned:
                self.warned.add(key)
                warnings.warn(str(finding), CoverageWarning, stacklevel=3)


def _facts(counts: SuiteCounts, inputs: int, *, doubtful: bool) -> SuiteFacts:
    """Return counts as plain data; without decisions if these are doubtful."""
    labelled = bool(counts.labels)
    classes = counts.labels if labelled else {} if doubtful else counts.decisions
    judged, right = (0, 0) if doubtful else (counts.judged, counts.right)
    return SuiteFacts(inputs, judged, right, dict(classes), labelled, channels=counts.channel_facts)

"""What training data teach: learnt from batches in one pass, read from a file, or given to states that were loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations, statistics_device
from neuralcov.core.counts import NOT_FINITE
from neuralcov.core.errors import CalibrationError, InputError
from neuralcov.core.files import is_place, name_of
from neuralcov.core.guards import ordinary_tensors
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.belonging import other_calibration
from neuralcov.coverage.measurement import Learnt, Measurement, OldIdentity
from neuralcov.coverage.provenance import Weights, is_moving
from neuralcov.coverage.references import HeldOut, checked_share, held_out_by
from neuralcov.coverage.sections import TrainingSample
from neuralcov.coverage.store import Place, StoredCalibration, load_calibration, save_calibration_file
from neuralcov.coverage.suite_counts import DECISIONS, SuiteCounts, decisions_of
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.statistic import in_order
from neuralcov.tap.inputs import Lengths
from neuralcov.tap.known_rows import require_same_pool
from neuralcov.tap.outputs import MEAN


def calibrate(
    ours: Measurement,
    reader: BatchReader,
    data: Any,
    *,
    activations: Any,
    labels: Any,
    predictions: Any,
    held_out: Any,
    lengths: Lengths | None,
    progress: bool | None,
) -> bool:
    """Teach every criterion, from training data or from a saved calibration, and start from empty coverage.

    Return whether there were training data, of which something may have to be told.
    """
    refuse_late_calibration(ours)
    single = isinstance(activations, (Mapping, Activations))
    if (labels is not None or predictions is not None) and not single:
        raise InputError(
            "labels= and predictions= go with one mapping of activations; batches of a loader carry their own, and "
            "of several batches each is an nc.Activations with labels and predictions"
        )
    if is_place(data):
        if held_out is not None:
            raise InputError("held_out= goes with training data; a saved calibration has what was held out then")
        stored = _read_calibration(ours, data)
        _take_origin(ours, data, stored)
        _fit(ours, stored.calibration, stored.old_identity)
        ours.learnt.training, ours.learnt.references = stored.training, stored.references
        ours.learnt.map = stored.map
        return False
    if lengths is not None and activations is not None:
        raise InputError("lengths= goes with a loader; activations are averaged over tokens already")
    share = checked_share(held_out) if isinstance(held_out, (int, float)) else None
    lesson = Lesson(ours, references=held_out is not None)
    with reader.first(), reader.open():
        for batch in reader.batches(data, activations, labels, predictions, lengths, "calibrating", progress):
            if share is None:
                lesson.add(batch)
            else:
                lesson.divide(batch, share)
        lesson.require_inputs()
        if held_out is not None and share is None:
            bare = ours.tap is None or isinstance(held_out, (Mapping, Activations))
            data, activations = (None, held_out) if bare else (held_out, None)
            for batch in reader.batches(data, activations, None, None, lengths, "holding out", progress):
                lesson.hold_out(batch)
    lesson.finish()
    return True


def refuse_late_calibration(ours: Measurement) -> None:
    """Refuse to calibrate what has observed inputs."""
    if ours.collection.inputs:
        raise CalibrationError("calibrate comes before the first update; call reset() first to start over")


class Lesson:
    """Learn batch by batch; the criteria know it once the lesson is finished.

    Args:
        measurement: whose criteria learn.
        references: whether inputs will be held out, to show what training data show of every criterion.
    """

    def __init__(self, measurement: Measurement, *, references: bool = False) -> None:
        self._measurement = measurement
        self._held_out = HeldOut() if references else None
        self._calibration: Calibration | None = None
        self._not_finite: Tensor | int = 0
        self._counts = SuiteCounts()
        self._sample: TrainingSample | None = None
        self._weights: Weights | None = None
        self._moving = False

    @ordinary_tensors
    def add(self, batch: Activations) -> None:
        """Learn from a batch of training data."""
        if self._calibration is None:
            collection = self._measurement.collection
            collection.require_memory(collection.layout or batch.layout)
            self._calibration = Calibration.empty(batch.layout, collection.criteria)
        self._calibration = self._calibration.observe(batch)
        self._not_finite = self._not_finite + batch.input_counts[NOT_FINITE]
        self._counts.note((), batch)
        self._note_size(batch)
        self._sample = self._sample or TrainingSample(batch.layout)
        self._sample.add(batch)

    def divide(self, batch: Activations, share: float) -> None:
        """Learn from a batch but for the share of it that is held out by content."""
        apart, decisions = held_out_by(batch, share), decisions_of(batch)
        self._note_size(batch)
        if not bool(apart.any()):
            self.add(batch)
            return
        if not bool(apart.all()):
            rest = batch.take(~apart)
            if decisions is not None:
                chosen = decisions[(~apart).to(decisions.device)]
                rest.shared(DECISIONS, lambda: chosen)
            self.add(rest)
        self.hold_out(batch.take(apart))

    def _note_size(self, batch: Activations) -> None:
        if self._held_out is not None:
            self._held_out.batch_size = max(self._held_out.batch_size, batch.size)

    @ordinary_tensors
    def hold_out(self, batch: Activations) -> None:
        """Keep a batch as a reference that the criteria did not learn from."""
        assert self._held_out is not None
        calibration = self._calibration or Calibration.empty(batch.layout, self._measurement.collection.criteria)
        self._calibration = calibration.hold_out(batch)
        self._held_out.add(batch)

    def note_weights(self) -> None:
        """Look whether the weights are those of the batches before."""
        model = self._measurement.provenance.model
        if model is None or self._moving:
            return
        if self._weights is None:
            self._weights = Weights(model)
        self._moving = not self._weights.unchanged()

    def require_inputs(self) -> None:
        """Refuse to learn from nothing."""
        if self._calibration is None or self._calibration.seen == 0:
            raise CalibrationError("calibration saw no input: the training data gave no batch")

    def finish(self) -> None:
        """Teach the criteria; what was learnt serves the weights as they are now."""
        self.require_inputs()
        assert self._calibration is not None
        ours = self._measurement
        if self._weights is not None:
            self.note_weights()
        if self._held_out is not None and not self._held_out.inputs:
            raise CalibrationError(
                f"held_out= held out none of {self._calibration.seen} training inputs with finite outputs: give a "
                "larger share, or a loader that has some"
            )
        _fit(ours, self._calibration.finished(excluded=int(self._not_finite)))
        ours.learnt.training = self._counts.settle()
        ours.learnt.map = None if self._sample is None else self._sample.finish()
        if self._held_out is not None:
            assert ours.collection.layout is not None
            ours.learnt.references = self._held_out.references(ours.collection.criteria, ours.collection.layout)
        ours.provenance.calibrated(moving=self._moving)


@ordinary_tensors
def _fit(ours: Measurement, calibration: Calibration, old_identity: OldIdentity | None = None) -> None:
    """Teach every criterion, and start from empty coverage."""
    collection = ours.collection
    with collection.turn:
        collection.criteria = tuple(
            criterion.calibrate(calibration) if criterion.learns else criterion for criterion in collection.criteria
        )
        ours.clear()
        ours.learnt = Learnt(calibration, old_identity)


def _read_calibration(ours: Measurement, path: Place) -> StoredCalibration:
    """Read a saved calibration; refuse one of other layers, and one that lacks what a criterion learns from."""
    collection = ours.collection
    home = statistics_device(torch.device("cpu") if ours.tap is None else ours.tap.device)
    stored = load_calibration(path, home if collection.layout is None else collection.layout.device)
    calibration = stored.calibration
    layout = calibration.layout(home)
    if collection.layout is None:
        collection.layout = layout
    collection.layout.require_same(layout, f"the calibration {name_of(path)}")
    if ours.tap is not None:
        ours.tap.expect(layout)
    for criterion in collection.criteria:
        for wanted in in_order(criterion.learns):
            if calibration.find(wanted) is None:
                raise CalibrationError(
                    f"{name_of(path)}: the calibration holds no {wanted.label}, which {criterion.name} learns from; "
                    "calibrate with this criterion among the criteria"
                )
    return stored


def _take_origin(ours: Measurement, path: Place, stored: StoredCalibration) -> None:
    """Note where a saved calibration comes from, or refuse it if that is another model."""
    told = stored.provenance
    if ours.tap is not None:
        require_same_pool(ours.tap.known_rows.pool, told, name_of(path))
    ours.provenance.take_calibration(name_of(path), told.get("model"), moving=is_moving(told))


@ordinary_tensors
def supply_calibration(ours: Measurement, path: Place, device: torch.device) -> None:
    """Give loaded criteria the calibration their states were made with, and no other.

    Args:
        ours: what was loaded.
        path: of the saved calibration, or an open file of it.
        device: where statistics live.
    """
    stored = load_calibration(path, statistics_device(device))
    calibration, known, collection = stored.calibration, ours.learnt_ids(), ours.collection
    for criterion in collection.criteria:
        if criterion.learns:
            theirs, then = calibration.identity(criterion.learns), stored.old_identity or calibration.old_identity
            if known[criterion.name] != theirs and known[criterion.name] != then(criterion.learns):
                raise other_calibration(criterion.name, known[criterion.name], theirs, name_of(path))
    _take_origin(ours, path, stored)
    # Of an earlier definition, states go with what was learnt then.
    collection.criteria = tuple(
        criterion.calibrate(calibration)
        if criterion.learns and collection.definitions[criterion.name] == criterion.definition
        else criterion
        for criterion in collection.criteria
    )
    references = ours.learnt.references or stored.references
    ours.learnt = Learnt(calibration, stored.old_identity)
    ours.learnt.training, ours.learnt.references = stored.training, references
    ours.learnt.map = stored.map


def save_calibration(ours: Measurement, path: Place) -> None:
    """Write what calibration learnt, traces included, to one file."""
    if ours.learnt.calibration is None:
        raise CalibrationError(
            "there is no calibration to save: call calibrate(...) first; a loaded state does not hold what it was "
            "calibrated on"
        )
    provenance = ours.describe()
    provenance |= provenance.pop("calibration")
    if ours.tap is not None and ours.tap.known_rows.pool != MEAN:
        provenance["pool"] = ours.tap.known_rows.pool
    learnt = ours.learnt
    save_calibration_file(path, ours.learnt.calibration, provenance, learnt.training, learnt.references, learnt.map)

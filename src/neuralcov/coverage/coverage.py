"""Coverage: what a user holds. A model or bare layers, criteria with their states, and what calibration learnt."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from neuralcov.core.activations import Activations, home_of
from neuralcov.core.arguments import usable_device
from neuralcov.core.counts import NOT_FINITE
from neuralcov.core.criterion import DUPLICATE_FREE
from neuralcov.core.errors import (
    CalibrationError,
    CoverageWarning,
    InputError,
    MismatchError,
    SameInputsError,
    StateFileError,
)
from neuralcov.core.findings import Finding, LayerRow, Unmeasured
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.coverage.batches import arranged, as_activations, tracked
from neuralcov.coverage.collection import AnyCriterion, Ledger, Proposal, SharedStates
from neuralcov.coverage.cuda_graph import Recorder
from neuralcov.coverage.ownership import Shared
from neuralcov.coverage.provenance import Origin, Provenance, Weights, model_id, require_same_preprocessing, short
from neuralcov.coverage.seen import KeyRule, SeenInputs
from neuralcov.coverage.store import (
    AnyPath,
    StoredCalibration,
    StoredCoverage,
    load_coverage,
    load_reference,
    save_coverage,
    save_reference,
    write_coverage,
)
from neuralcov.results import Results
from neuralcov.statistics.calibration import Reference
from neuralcov.tap import Batch, LayerChoice, Tap, unpack_batch
from neuralcov.tap.inputs import (
    Lengths,
    Unpack,
    as_labels,
    requires_two_inputs,
    unused_part,
    usable_labels,
    with_lengths,
)
from neuralcov.tap.known_rows import require_same_rows
from neuralcov.tap.rows import Rows
from neuralcov.tap.signatures import form_of

# In place of a criterion's name, in findings about layers that were left out.
_LAYERS = "layers"

# The share of a suite that another may have in common with it: data sets hold a few duplicates.
_OVERLAP = 0.01


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The states of a coverage at one moment, to go back to."""

    names: tuple[str, ...]
    identities: Mapping[str, str | None]
    layout: Layout | None
    states: SharedStates | None
    definitions: Mapping[str, int]
    seen: SeenInputs
    origin: Origin
    model: nn.Module | None
    preprocessing: Any


class Coverage:
    """Test coverage of a model.

    Args:
        model: any module; it is run in eval mode without gradients and left as it was.
        criteria: what to measure, for example ``[nc.NLC(), nc.NC(0.75)]``.
        layers: which modules count; see :func:`neuralcov.tap.layers.choose_layers`.
        predict: from the model's output to one class per input, where the usual reading does not fit.
        batch_axis: the axis of the first input that is the batch.
        device: where inputs go; by default where the model is.
        mode: ``"eval"``, or ``"keep"`` to leave dropout and the like as they are.
        unpack: from what a loader yields to ``(inputs, labels)``, or to ``(inputs, labels, batch)`` where tensors
            disagree: batch is the number of inputs, or the name of the tensor with one row per input.
        rows: from a layer's name and its output to the input that each row of axis 0 belongs to, -1 for none, for
            layers whose rows do not follow the batch (experts); ``None`` leaves a layer to what :meth:`probe` finds.
        steps: time steps of recurrent layers; by default those of the first batch.
        cuda_graph: record updates as CUDA graphs, one per shape of input, and replay them: much faster at small
            batches. For a model on one GPU whose forward pass does the same for every input of a shape; what it
            decides in Python is decided once. Without effect on a CPU.
        preprocessing: what was done to the inputs, as text or plain data; files keep it, and coverages of other
            preprocessing are not merged.
        keys: by what files tell inputs apart, so that none counts twice: ``"plain"`` keys of their content, which show
            whoever has an input whether it is among them; ``"salted"`` ones, which show it only to those who have the
            salt; or ``"none"``.
        salt: a text of your own, for salted keys.

    Example:
        >>> import torch, neuralcov as nc
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> cov = nc.Coverage(model, [nc.NC(0.5), nc.TKNC(1)])
        >>> cov.update(torch.eye(4))
        >>> sorted(cov.values())
        ['NC(0.5)', 'TKNC(1)']
    """

    def __init__(
        self,
        model: nn.Module,
        criteria: Sequence[AnyCriterion],
        *,
        layers: LayerChoice = None,
        predict: Callable[[Any], Any] | None = None,
        batch_axis: int = 0,
        device: torch.device | str | None = None,
        mode: str = "eval",
        unpack: Unpack | None = None,
        rows: Rows | None = None,
        steps: int | None = None,
        cuda_graph: bool = False,
        preprocessing: Any = None,
        keys: str = "plain",
        salt: str | bytes | None = None,
    ) -> None:
        self._ledger = Ledger(criteria)
        self._ledger.seen = SeenInputs(KeyRule.of(keys, salt))
        self._tap: Tap | None = Tap(
            model, layers, predict=predict, batch_axis=batch_axis, device=device, mode=mode, steps=steps, rows=rows
        )
        self._recorder = Recorder(self._tap, self._ledger) if cuda_graph else None
        self._unpack = unpack
        self._loaded_rows: Mapping[str, Any] | None = None
        self._reference: Reference | None = None
        self._old_identity: Callable[[frozenset[str]], str] | None = None
        self._identities: dict[str, str | None] | None = None
        self._provenance = Provenance(self._tap.model, preprocessing)
        self._depth = 0
        self._warned: set[str] = set()
        self._unmeasured: tuple[Layout | None, Unmeasured] | None = None

    @classmethod
    def of_layers(
        cls,
        widths: Mapping[str, int],
        criteria: Sequence[AnyCriterion],
        *,
        device: torch.device | str = "cpu",
        preprocessing: Any = None,
        keys: str = "plain",
        salt: str | bytes | None = None,
    ) -> Self:
        """Coverage of layers whose activations somebody else computes: NumPy, JAX, TensorFlow, ONNX.

        Args:
            widths: layer → number of neurons, in execution order.
            criteria: what to measure.
            device: where statistics live.
            preprocessing: as for :class:`Coverage`, like the rest.
            keys: see there; inputs are told apart by their activations.
            salt: see there.
        """
        coverage = cls._without_model(criteria, preprocessing, KeyRule.of(keys, salt))
        coverage._ledger.layout = Layout(widths, home_of(usable_device(device)))
        return coverage

    @classmethod
    def _without_model(
        cls, criteria: Sequence[AnyCriterion], preprocessing: Any = None, rule: KeyRule | None = None
    ) -> Self:
        coverage = cls.__new__(cls)
        coverage._ledger = Ledger(criteria)
        coverage._ledger.seen = SeenInputs(rule)
        coverage._tap = None
        coverage._recorder = None
        coverage._unpack = None
        coverage._loaded_rows = None
        coverage._reference = None
        coverage._old_identity = None
        coverage._identities = None
        coverage._provenance = Provenance(None, preprocessing)
        coverage._depth = 0
        coverage._warned = set()
        coverage._unmeasured = None
        return coverage

    def __repr__(self) -> str:
        layout = self._ledger.layout
        where = "no batch yet" if layout is None else f"{len(layout)} layers, {layout.neurons} neurons"
        return f"Coverage([{', '.join(self._ledger.names)}], {where})"

    @property
    def criteria(self) -> tuple[AnyCriterion, ...]:
        """The criteria, with what calibration taught them."""
        return self._ledger.criteria

    @property
    def model(self) -> nn.Module | None:
        """The model, or ``None`` where somebody else computes the activations."""
        return None if self._tap is None else self._tap.model

    @property
    def layout(self) -> Layout | None:
        """The layers, once the first batch has shown them."""
        return self._ledger.layout

    @property
    def inputs(self) -> int:
        """How many inputs were observed, those left out included."""
        return self._ledger.inputs

    @property
    def device(self) -> torch.device:
        """Where inputs go: where the model is, or without one where statistics live."""
        if self._tap is not None:
            return self._tap.device
        return torch.device("cpu") if self._ledger.layout is None else self._ledger.layout.device

    # Measuring

    @contextmanager
    def tap(self) -> Iterator[None]:
        """A block within which hooks stay in place, for many single calls in a row."""
        with ExitStack() as stack:
            for part in (self._tap, self._recorder):
                if part is not None:
                    stack.enter_context(part.open())
            self._depth += 1
            stack.callback(self._leave)
            yield

    def _leave(self) -> None:
        self._depth -= 1

    def probe(self, inputs: Any) -> None:
        """Find out which rows of each layer's output belong to which input; nothing is observed.

        The first batch of two or more inputs does the same by itself.

        Args:
            inputs: two or more, as for :meth:`update`.
        """
        if self._tap is None:
            raise InputError("this coverage has no model to run inputs through")
        self._tap.probe(Batch(inputs))

    def calibrate(
        self,
        data: Iterable[Any] | AnyPath | None = None,
        *,
        activations: Mapping[str, Any] | Activations | Iterable[Any] | None = None,
        labels: Any = None,
        predictions: Any = None,
        held_out: Iterable[Any] | None = None,
        lengths: Lengths | None = None,
        progress: bool | None = None,
    ) -> None:
        """Learn from training data, in one pass for all criteria; coverage is empty afterwards.

        Args:
            data: a loader of training batches, or the path of a saved calibration.
            activations: in place of data, ``{layer: (batch, neurons)}`` or several such mappings.
            labels: with a single mapping of activations.
            predictions: with a single mapping of activations.
            held_out: training inputs (or activations) kept out of ``data``, the reference of ``LVC(relative=True)``.
            lengths: where inputs are padded, from what the loader yields to one length per input, or the key under
                which its mappings hold the lengths.
            progress: show a bar; by default only in a terminal.
        """
        if self.inputs:
            raise CalibrationError("calibrate comes before the first update; call reset() first to start over")
        single = isinstance(activations, (Mapping, Activations))
        if (labels is not None or predictions is not None) and not single:
            raise InputError(
                "labels= and predictions= go with one mapping of activations; batches of a loader carry their own, and "
                "of several batches each is an nc.Activations with labels and predictions"
            )
        if isinstance(data, (str, os.PathLike)):
            if held_out is not None:
                raise InputError("held_out= goes with training data; a saved calibration has what was held out then")
            stored = self._read_calibration(data)
            self._provenance.take_calibration(data, stored.provenance.get("model"))
            self._fit(stored.reference)
            self._old_identity = stored.old_identity
            return
        if lengths is not None and activations is not None:
            raise InputError("lengths= goes with a loader; activations are averaged over tokens already")
        reference: Reference | None = None
        not_finite: Tensor | int = 0
        with self._first(), self.tap():
            for batch in self._batches(data, activations, labels, predictions, lengths, "calibrating", progress):
                reference = (reference or Reference.empty(batch.layout, self.criteria)).observe(batch)
                not_finite = not_finite + batch.input_counts[NOT_FINITE]
            if reference is None or reference.seen == 0:
                raise CalibrationError("calibration saw no input: the training data gave no batch")
            if held_out is not None:
                bare = self._tap is None or isinstance(held_out, (Mapping, Activations))
                data, activations = (None, held_out) if bare else (held_out, None)
                for batch in self._batches(data, activations, None, None, lengths, "holding out", progress):
                    reference = reference.hold_out(batch)
        self._fit(reference.finished(left_out=int(not_finite)))
        self._provenance.calibrated()
        self._warn(of_outputs=True)

    def assess(self, data: Iterable[Any], *, lengths: Lengths | None = None, progress: bool | None = None) -> None:
        """Update with every batch of a loader; one forward pass feeds all criteria.

        Args:
            data: a loader of batches.
            lengths: where inputs are padded, from what the loader yields to one length per input, or the key under
                which its mappings hold the lengths.
            progress: show a bar; by default only in a terminal.
        """
        seen = False
        self._seen.end_run()
        with self._first(), self.tap():
            for batch in self._inputs(data, lengths, "assessing", progress):
                self._take(batch)
                seen = True
        self._seen.end_run()
        if not seen:
            raise InputError("the data gave no batch: nothing was assessed")
        self._watch()
        self._warn(of_outputs=True)

    def update(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> None:
        """Take one batch in.

        Args:
            inputs: a tensor, a tuple of inputs or a mapping of keyword inputs.
            labels: one class per input, where known; targets of any other form are not used.
            activations: in place of inputs, ``{layer: (batch, neurons)}``.
            predictions: with activations, one predicted class per input.
            lengths: time steps of each input, where shorter ones are padded.
        """
        with self._first():
            if self._recorder is not None and activations is None and predictions is None and lengths is None:
                self._take(Batch(inputs, self._labels(labels)))
            else:
                self._ledger.observe(self._batch(inputs, labels, activations, predictions, lengths))

    def gain(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> dict[str, Tensor]:
        """By criterion, how far each input alone would move the value. Nothing changes."""
        with self._first():
            return self._ledger.gain(self._batch(inputs, labels, activations, predictions, lengths))

    def scores(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> dict[str, Tensor]:
        """By criterion, the surprise of each input, for the criteria that have one."""
        with self._first():
            return self._ledger.scores(self._batch(inputs, labels, activations, predictions, lengths))

    def propose(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> Proposal:
        """The gain of each input, with the chance to commit some of them without running the model again."""
        with self._first():
            batch = self._batch(inputs, labels, activations, predictions, lengths)
        with self._ledger.turn:
            return Proposal(self._ledger, batch, self._ledger.gain(batch))

    def admit(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
        min_gain: float = 0.0,
    ) -> Tensor:
        """Observe inputs in order, each only if some criterion gains more than ``min_gain`` on the state it meets.

        Inputs that a criterion excludes are counted, and admitted only if another one gains by them. If nothing is
        admitted, nothing but these counts changes, and proposals made before stay good.

        Args:
            inputs: as for :meth:`update`, like the rest.
            labels: see there.
            activations: see there.
            predictions: see there.
            lengths: see there.
            min_gain: what the gain must exceed; below 0, inputs that do not raise the value, or lower it, are
                admitted as well.

        Returns:
            Which inputs were admitted, ``(batch,)``.
        """
        with self._first():
            batch = self._batch(inputs, labels, activations, predictions, lengths)
            return self._ledger.admit(batch, min_gain=min_gain)

    def run(
        self, inputs: Any, labels: Any = None, *, lengths: Any = None, predictions: bool = True
    ) -> tuple[Activations, Any]:
        """Run the model once and observe nothing.

        Args:
            inputs: as for :meth:`update`.
            labels: see there.
            lengths: see there.
            predictions: whether to read off the classes the model chose.

        Returns:
            The activations, for ``activations=`` of the other methods, and the model's output.
        """
        if self._tap is None:
            raise InputError("this coverage has no model to run inputs through")
        return self._tapped(Batch(inputs, self._labels(labels)), lengths, predictions=predictions)

    # Results

    def values(self) -> dict[str, float]:
        """The value of every criterion, in the order given."""
        self._warn()
        return self._ledger.values()

    def details(self) -> dict[str, dict[str, float]]:
        """Figures that belong beside the values, such as a standard error, by criterion."""
        return self._ledger.details()

    def by_layer(self) -> tuple[LayerRow, ...]:
        """One row per layer, with ``layer``, ``neurons`` and ``values``."""
        return self._ledger.by_layer()

    def findings(self) -> tuple[Finding, ...]:
        """What was left out of the measurement, and what to bear in mind when reading it."""
        found = []
        left_out = 0 if self._reference is None else self._reference.left_out
        unread = "" if self._tap is None else self._tap.known_rows.sentence
        if unread:
            found.append(Finding(_LAYERS, unread))
        if left_out:
            said = f"{left_out} training inputs with NaN or infinite outputs were left out"
            found.append(Finding("calibration", said, left_out))
        if self._seen.shared:
            twice = f"{self._seen.shared} inputs (an estimate) were in more than one of the suites merged"
            found.append(Finding("inputs", twice, self._seen.shared))
        unmeasured = None if self.layout is None else self.unmeasured()
        if unmeasured is not None and unmeasured.noteworthy:
            found.append(Finding(_LAYERS, str(unmeasured)))
        of_tap = () if self._tap is None else self._tap.findings()
        return (*found, *of_tap, *self._ledger.findings())

    def results(
        self,
        *,
        model: str = "",
        suite: str = "",
        inputs: int | None = None,
        before: Mapping[str, float] | None = None,
        weights: str | None = None,
        notes: Sequence[str] = (),
    ) -> Results:
        """Return all that reports render, as plain data.

        Args:
            model: what to call the model.
            suite: what to call the inputs.
            inputs: how many inputs the suite has; by default all that were observed.
            before: values that the suite was added to.
            weights: where the model's weights come from.
            notes: sentences to show beside the results.
        """
        return Results(
            model=model,
            suite=suite,
            inputs=self.inputs if inputs is None else inputs,
            values=self.values(),
            details=self.details(),
            layers=self.by_layer(),
            findings=tuple(str(finding) for finding in self.findings()),
            calibration=self.calibration_ids(),
            before=before,
            weights=weights,
            notes=tuple(notes),
            unmeasured=self.unmeasured(),
        )

    def unmeasured(self) -> Unmeasured | None:
        """The share of the model's parameters that belong to no measured layer; ``None`` without a model."""
        if self._tap is None:
            return None
        if self._unmeasured is None or self._unmeasured[0] is not self.layout:
            self._unmeasured = (self.layout, self._tap.unmeasured(self.layout))
        return self._unmeasured[1]

    def provenance(self) -> dict[str, Any]:
        """Where the measurement comes from, as files keep it: model, calibration, preprocessing, versions, device."""
        return self._provenance.describe(self.device, empty=self._ledger.empty)

    # States

    def snapshot(self) -> Snapshot:
        """The present state, to return to with :meth:`restore`."""
        with self._ledger.turn:
            return Snapshot(
                self._ledger.names,
                self.calibration_ids(),
                self._ledger.layout,
                self._ledger.share(),
                dict(self._ledger.definitions),
                self._seen.copy(),
                self._provenance.states,
                self.model,
                self._provenance.preprocessing,
            )

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this coverage or one like it."""
        if not isinstance(snapshot, Snapshot):
            raise InputError(f"a {type(snapshot).__name__} is no snapshot: expected what snapshot() gave")
        self._require_same(snapshot.names, snapshot.identities, "the snapshot")
        if self._ledger.layout is not None and snapshot.layout is not None:
            self._ledger.layout.require_same(snapshot.layout, "the snapshot")
        if snapshot.states is not None:
            if not self._ledger.empty:
                self._require_definitions(snapshot.definitions, "the snapshot")
            if snapshot.model is not self.model:
                theirs = snapshot.origin.id or (None if snapshot.model is None else model_id(snapshot.model))
                self._require_model(theirs, "the snapshot")
            require_same_preprocessing(self._provenance.preprocessing, snapshot.preprocessing)
        with self._ledger.turn:
            self._ledger.adopt(snapshot.states)
            self._ledger.definitions = dict(snapshot.definitions)
            self._ledger.seen = snapshot.seen.copy()
            self._provenance.states = snapshot.origin

    def reset(self) -> None:
        """Empty the coverage and keep the calibration."""
        with self._ledger.turn:
            self._clear()
        self._warned.clear()

    def merge(self, other: Coverage, *, overlap: str = "refuse") -> None:
        """Take in what another coverage of the same model, criteria and calibration has seen.

        Args:
            other: the other coverage, which stays as it is.
            overlap: what to do if more than one per cent of the smaller suite's inputs are in both and a criterion
                takes part to which duplicates matter: ``"refuse"`` or ``"allow"``. A run that is in both, such as a
                file loaded twice, is refused in any case.
        """
        if overlap not in ("refuse", "allow"):
            raise InputError(f"overlap={overlap!r}: expected 'refuse' or 'allow'")
        self._require_same(other._ledger.names, other.calibration_ids(), "the other coverage", other)
        if other._ledger.layout is None or other._ledger.empty:
            return
        if self._ledger.layout is not None:
            self._ledger.layout.require_same(other._ledger.layout, "the other coverage")
        first = self._ledger.empty
        if not first:
            self._require_definitions(other._ledger.definitions, "the other")
        theirs = other._provenance.measured_on(empty=False)
        told = other._provenance.preprocessing
        if not (first and self._tap is None):
            self._require_model(None if theirs is None else str(theirs["id"]), "the other")
            require_same_preprocessing(self._provenance.preprocessing, told)
        require_same_rows(self._found_rows(), other._found_rows(), "the other coverage")
        self._require_other_inputs(other._seen, overlap)
        self._ledger.merge(other._ledger)
        self._seen.merge(other._seen)
        if first:
            self._provenance.preprocessing = told
            weights = None if self.model is None else Weights(self.model)
            self._provenance.states = Origin(model=theirs, weights=weights, known=theirs is not None)
        self._provenance.merged(other._provenance)

    def has_runs_of(self, other: Coverage) -> bool:
        """Return whether every run of another coverage is in this one, so that there is nothing to merge."""
        return bool(other._seen.runs) and len(self._seen.common_runs(other._seen)) == len(other._seen.runs)

    def fork(self) -> Self:
        """Copy this coverage: the same model, options, calibration and state, and from here on independent."""
        twin = type(self).__new__(type(self))
        # All attributes first, so that options which come to be later are kept too; then what must not be shared.
        vars(twin).update(vars(self))
        twin._ledger = self._ledger.fork()
        twin._tap = None if self._tap is None else self._tap.fork()
        twin._recorder = None if self._recorder is None or twin._tap is None else Recorder(twin._tap, twin._ledger)
        twin._warned = set(self._warned)
        twin._provenance = self._provenance.copy()
        twin._depth = 0
        return twin

    def __copy__(self) -> Self:
        return self.fork()

    def __add__(self, other: Coverage | int) -> Coverage:
        """A new coverage of both, so that ``sum(coverages)`` works."""
        total = self.fork()
        if isinstance(other, Coverage):
            total.merge(other)
        elif other != 0:
            return NotImplemented
        return total

    __radd__ = __add__

    def save(self, path: AnyPath, *, end_run: bool = True) -> None:
        """Write the states, and what calibration learnt short of traces, to one file.

        Args:
            path: where to; the file is complete there or as it was before.
            end_run: whether inputs to come are another run than those up to now, so that this file and a later one
                are known to have these in common.
        """
        if self._ledger.layout is None:
            raise StateFileError(f"{path}: nothing to save, no batch was observed yet")
        self._warn()
        if end_run:
            self._seen.end_run()
        with self._ledger.turn:
            save_coverage(path, self._content())

    def to_bytes(self) -> bytes:
        """Return what :meth:`save` would write, to be sent elsewhere."""
        if self._ledger.layout is None:
            raise StateFileError("nothing to save, no batch was observed yet")
        self._seen.end_run()
        file = io.BytesIO()
        with self._ledger.turn:
            write_coverage(file, self._content())
        return file.getvalue()

    @classmethod
    def load(
        cls,
        path: AnyPath,
        model: nn.Module | None = None,
        *,
        calibration: AnyPath | None = None,
        criteria: Sequence[AnyCriterion] | None = None,
        device: torch.device | str | None = None,
        preprocessing: Any = None,
        keys: str = "plain",
        salt: str | bytes | None = None,
        **options: Any,
    ) -> Self:
        """Go on from a saved file.

        Args:
            path: what :meth:`save` wrote.
            model: the model, with the weights the file was measured on; without one the coverage takes activations.
            calibration: a saved calibration, for criteria whose training traces state files do not hold.
            criteria: if given, refuse a file with other criteria or hyper-parameters.
            device: where statistics go without a model; with one, as for :class:`Coverage`.
            preprocessing: if given, refuse a file of another one.
            keys: as for :class:`Coverage`. Inputs to come have keys in a file only if those in it are of this kind.
            salt: see there.
            options: further arguments of :class:`Coverage`, such as ``predict``.
        """
        if model is None and options:
            raise InputError(f"{next(iter(options))}= needs a model: pass one to load, or leave it out")
        told = {"preprocessing": preprocessing, "keys": keys, "salt": salt}
        return cls._load(path, str(path), model, calibration, criteria, device, {**options, **told})

    @classmethod
    def from_bytes(cls, data: bytes, model: nn.Module | None = None, **options: Any) -> Self:
        """Go on from what :meth:`to_bytes` gave; the options are those of :meth:`load`."""
        parts = {name: options.pop(name, None) for name in ("calibration", "criteria", "device")}
        if model is None and options.keys() - {"preprocessing", "keys", "salt"}:
            raise InputError(f"{next(iter(options))}= needs a model: pass one, or leave it out")
        told = {"preprocessing": None, "keys": "plain", "salt": None, **options}
        return cls._load(data, "the bytes", model, parts["calibration"], parts["criteria"], parts["device"], told)

    @classmethod
    def _load(
        cls,
        source: AnyPath | bytes,
        name: str,
        model: nn.Module | None,
        calibration: AnyPath | None,
        criteria: Sequence[AnyCriterion] | None,
        device: torch.device | str | None,
        options: dict[str, Any],
    ) -> Self:
        parameter = None if model is None else next(model.parameters(), None)
        where = usable_device(device or "cpu") if parameter is None else parameter.device
        rule = KeyRule.of(options["keys"], options["salt"])
        content = load_coverage(source, home_of(where), rule)
        if criteria is not None and [c.name for c in criteria] != [c.name for c in content.criteria]:
            held, wanted = (", ".join(c.name for c in some) for some in (content.criteria, criteria))
            raise MismatchError(f"{name} holds {held}, expected {wanted}")
        if model is None:
            coverage = cls._without_model(content.criteria, options["preprocessing"], rule)
        else:
            chosen = list(content.modules if content.modules is not None else content.layout)
            coverage = cls(model, content.criteria, layers=chosen, device=device, **options)
        coverage._identities = dict(content.identities)
        coverage._take_states(content, name)
        if calibration is not None:
            coverage._supply(load_reference(calibration, home_of(where)), str(calibration))
        return coverage

    def load_state(self, path: AnyPath, *, same_run: bool = False) -> None:
        """Replace the state of this coverage by that of a file of the same model, criteria and calibration.

        Args:
            path: what :meth:`save` wrote.
            same_run: whether inputs to come belong to the file's last run, which was interrupted.
        """
        device = home_of(self.device) if self.layout is None else self.layout.device
        content = load_coverage(path, device, self._seen.rule)
        self._require_same(tuple(c.name for c in content.criteria), content.identities, str(path))
        if self._ledger.layout is not None:
            self._ledger.layout.require_same(content.layout, str(path))
        self._take_states(content, str(path))
        if same_run:
            self._seen.reopen_run()
        self._warned.clear()

    def _take_states(self, content: StoredCoverage, name: str) -> None:
        """Go on from the states of a file, or refuse those of another model or preprocessing."""
        told = content.provenance.get("model")
        if self._tap is not None:
            content.layout.require_modules(self._tap.widths(), name)
            ours = None if told is None else model_id(self._tap.model)
            if told is not None and told["id"] != ours:
                raise MismatchError(
                    f"{name} was measured on weights {short(told['id'])}, this model has {short(ours)}: load those "
                    "weights, or load it without a model"
                )
            self._tap.expect(content.layout)
            if content.rows is not None:
                self._tap.known_rows.expect(content.rows)
        else:
            self._loaded_rows = content.rows
        prepared = content.provenance.get("preprocessing")
        if self._provenance.preprocessing is None:
            self._provenance.preprocessing = prepared
        elif "preprocessing" in content.provenance:
            require_same_preprocessing(self._provenance.preprocessing, prepared)
        self._ledger.layout = content.layout
        self._ledger.adopt(tuple(Shared(state) for state in content.states))
        self._ledger.definitions = dict(content.definitions)
        self._ledger.seen = content.seen or self._seen.unknown(self._ledger.inputs)
        self._provenance.loaded(content.provenance, content.id)

    def save_calibration(self, path: AnyPath) -> None:
        """Write what calibration learnt, traces included, to one file that :meth:`calibrate` reads."""
        if self._reference is None:
            raise CalibrationError(
                "there is no calibration to save: call calibrate(...) first; a loaded state does not hold what it was "
                "calibrated on"
            )
        provenance = self.provenance()
        provenance["model"] = provenance.pop("calibration")["model"]
        save_reference(path, self._reference, provenance)

    def calibration_ids(self) -> dict[str, str | None]:
        """By criterion, the SHA-256 of what it learnt; ``None`` for those that learn nothing or have not yet."""
        if self._identities is None:
            reference = self._reference
            self._identities = {
                criterion.name: reference.identity(criterion.learns) if reference and criterion.learns else None
                for criterion in self.criteria
            }
        return dict(self._identities)

    # Inside

    def _found_rows(self) -> Mapping[str, Any] | None:
        """The order of every layer's rows, as files keep it."""
        return self._loaded_rows if self._tap is None else self._tap.known_rows.to_json()

    def _batch(self, inputs: Any, labels: Any, activations: Any, predictions: Any, lengths: Any) -> Activations:
        """One batch to measure, as :meth:`_read` gives it, unless the weights have changed."""
        found = self._read(inputs, labels, activations, predictions, lengths)
        self._watch()
        return found

    def _read(self, inputs: Any, labels: Any, activations: Any, predictions: Any, lengths: Any) -> Activations:
        """One batch from whatever the user gave, arranged as the layout says."""
        if (inputs is None) == (activations is None):
            raise InputError("give either inputs or activations=, one of the two")
        if activations is not None:
            device = None if self.layout is None else self.layout.device
            return self._arranged(as_activations(activations, labels, predictions, device))
        if self._tap is None:
            raise InputError("this coverage has no model to run inputs through: pass activations=")
        if predictions is not None:
            raise InputError("predictions= goes with activations=; with inputs the model predicts")
        return self._run(Batch(inputs, self._labels(labels)), lengths)

    def _labels(self, labels: Any) -> Tensor | None:
        """Labels as criteria use them; what cannot be used is refused where a criterion needs it."""
        if labels is None:
            return None
        return as_labels(labels) if "labels" in self._ledger.needs else usable_labels(labels)

    def _first(self) -> AbstractContextManager[None]:
        """Within, a first batch that raises leaves open what it would have settled: layers and time steps."""
        return nullcontext() if self._ledger.layout is not None else self._settling()

    @contextmanager
    def _settling(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._ledger.empty:
                self._ledger.layout = None
                if self._tap is not None:
                    self._tap.forget_steps()
            raise

    def _take(self, batch: Batch) -> None:
        """Observe a batch of inputs, by a recording where there is one for it."""
        if self._recorder is not None:
            self._watch()
            if self._recorder.update(batch):
                return
        found = self._run(batch)
        self._watch()
        self._ledger.observe(found)

    def _run(self, batch: Batch, lengths: Any = None) -> Activations:
        return self._tapped(batch, lengths)[0]

    def _watch(self) -> None:
        """Refuse to go on if the weights changed; within a block, parameters are not looked for anew."""
        self._provenance.watch(empty=self._ledger.empty, whole=not self._depth)

    def _tapped(self, batch: Batch, lengths: Any = None, *, predictions: bool = False) -> tuple[Activations, Any]:
        assert self._tap is not None
        wanted = {
            "predictions": predictions or "predictions" in self._ledger.needs,
            "relevance": "relevance" in self._ledger.needs,
        }
        activations, output = self._tap.run(batch, lengths=lengths, **wanted)
        return self._arranged(activations), output

    def _arranged(self, batch: Activations) -> Activations:
        if self._ledger.layout is None:
            self._ledger.layout = batch.layout
        return arranged(batch, self._ledger.layout)

    def _batches(
        self,
        data: Any,
        activations: Any,
        labels: Any,
        predictions: Any,
        lengths: Lengths | None,
        title: str,
        progress: bool | None,
    ) -> Iterator[Activations]:
        """Every batch of a loader, or of bare activations."""
        if (data is None) == (activations is None):
            raise InputError("give either data or activations=, one of the two")
        if isinstance(activations, (Mapping, Activations)):
            yield self._read(None, labels, activations, predictions, None)
        elif activations is not None:
            for item in tracked(activations, title, progress):
                yield self._read(None, None, item, None, None)
        else:
            for batch in self._inputs(data, lengths, title, progress):
                yield self._run(batch)

    def _inputs(self, data: Any, lengths: Lengths | None, title: str, progress: bool | None) -> Iterator[Batch]:
        """Every batch of a loader, taken apart."""
        if isinstance(data, (Tensor, Mapping)) or not isinstance(data, Iterable):
            raise InputError(f"data of type {type(data).__name__}: expected a loader that yields batches")
        if self._tap is None:
            raise InputError("this coverage has no model to run inputs through: pass activations=")
        form, two_inputs = form_of(self._tap.model), requires_two_inputs(self._tap.model)
        for item in tracked(data, title, progress):
            batch = unpack_batch(item, self._unpack, two_inputs=two_inputs, read_labels=self._labels)
            unused = unused_part(item, batch, form) if self._unpack is None else None
            if unused is not None and "unused" not in self._warned:
                self._warned.add("unused")
                warnings.warn(unused, CoverageWarning, stacklevel=2)
            yield batch if lengths is None else with_lengths(batch, item, lengths, form)

    @ordinary_tensors
    def _fit(self, reference: Reference) -> None:
        """Teach every criterion, and start from empty coverage."""
        with self._ledger.turn:
            self._ledger.criteria = tuple(
                criterion.calibrate(reference) if criterion.learns else criterion for criterion in self.criteria
            )
            self._clear()
            self._reference, self._identities, self._old_identity = reference, None, None

    @property
    def _seen(self) -> SeenInputs:
        assert self._ledger.seen is not None
        return self._ledger.seen

    def _clear(self) -> None:
        """Have observed nothing."""
        self._ledger.adopt(None)
        self._ledger.definitions = self._ledger.own_definitions()
        self._ledger.seen = self._seen.emptied()
        self._provenance.states = Origin()

    def _content(self) -> StoredCoverage:
        """What a file holds."""
        assert self._ledger.layout is not None
        if not self._ledger.empty and self._tap is not None:
            self._provenance.watch(empty=False, whole=True)
        return StoredCoverage(
            layout=self._ledger.layout,
            modules=None if self._tap is None else tuple(self._tap.chosen),
            criteria=self.criteria,
            states=self._ledger.states,
            identities=self.calibration_ids(),
            definitions=self._ledger.definitions,
            seen=self._seen,
            provenance=self.provenance(),
            rows=self._found_rows(),
        )

    def _read_calibration(self, path: AnyPath) -> StoredCalibration:
        device = torch.device("cpu") if self._tap is None else self._tap.device
        stored = load_reference(path, home_of(device) if self.layout is None else self.layout.device)
        reference = stored.reference
        layout = reference.layout(home_of(device))
        if self._ledger.layout is None:
            self._ledger.layout = layout
        self._ledger.layout.require_same(layout, f"the calibration {path}")
        if self._tap is not None:
            self._tap.expect(layout)
        for criterion in self.criteria:
            for wanted in sorted(criterion.learns):
                if reference.find(wanted) is None:
                    raise CalibrationError(
                        f"{path}: the calibration holds no {wanted}, which {criterion.name} learns from; "
                        "calibrate with this criterion among the criteria"
                    )
        return stored

    @ordinary_tensors
    def _supply(self, stored: StoredCalibration, path: str) -> None:
        """Give loaded criteria the calibration their states were made with, and no other."""
        reference, ours = stored.reference, self.calibration_ids()
        for criterion in self.criteria:
            if criterion.learns:
                theirs, then = reference.identity(criterion.learns), stored.old_identity or reference.old_identity
                if ours[criterion.name] != theirs and ours[criterion.name] != then(criterion.learns):
                    raise _other_calibration(criterion.name, ours[criterion.name], theirs, path)
        self._provenance.take_calibration(path, stored.provenance.get("model"))
        ledger = self._ledger
        # Of an earlier definition, states go with what was learnt then.
        ledger.criteria = tuple(
            criterion.calibrate(reference)
            if criterion.learns and ledger.definitions[criterion.name] == criterion.definition
            else criterion
            for criterion in self.criteria
        )
        self._reference, self._identities, self._old_identity = reference, None, stored.old_identity

    def _require_same(
        self,
        names: tuple[str, ...],
        identities: Mapping[str, str | None],
        what: str,
        other: Coverage | None = None,
    ) -> None:
        if names != self._ledger.names:
            raise MismatchError(
                f"criteria differ: this coverage has {', '.join(self._ledger.names)}, {what} has {', '.join(names)}"
            )
        for name, ours in self.calibration_ids().items():
            if not self.has_calibration(name, identities[name], other):
                raise _other_calibration(name, ours, identities[name], what)

    def has_calibration(self, name: str, identity: str | None, other: Coverage | None = None) -> bool:
        """Return whether what a criterion learnt is known by this id, today or in files of schema 1.

        Args:
            name: of the criterion.
            identity: as :meth:`calibration_ids` or a file gives it.
            other: the coverage the id comes from, where it is at hand.
        """
        ours = self.calibration_ids()[name]
        if ours == identity or ours is None or identity is None:
            return ours == identity
        return identity == self._schema_1_id(name) or (other is not None and ours == other._schema_1_id(name))

    def _schema_1_id(self, name: str) -> str | None:
        """The id of a criterion's calibration as files of schema 1 have it."""
        criterion = self.criteria[self._ledger.names.index(name)]
        if self._reference is None or not criterion.learns:
            return None
        return (self._old_identity or self._reference.old_identity)(criterion.learns)

    def _require_definitions(self, definitions: Mapping[str, int], what: str) -> None:
        for name, ours in self._ledger.definitions.items():
            if definitions[name] != ours:
                raise MismatchError(
                    f"{name}: this coverage has definition {ours}, {what} {definitions[name]}: measure again with one "
                    "version"
                )

    def _require_model(self, theirs: str | None, what: str) -> None:
        """Refuse what was measured on another model, or on one that nobody knows."""
        found = self._provenance.measured_on(empty=self._ledger.empty)
        ours = None if found is None else str(found["id"])
        if ours != theirs:
            here = "does not say" if ours is None else f"was measured on weights {short(ours)}"
            there = "does not say" if theirs is None else f"on {short(theirs)}"
            raise MismatchError(f"models differ: this coverage {here}, {what} {there}")

    def _require_other_inputs(self, other: SeenInputs, overlap: str) -> None:
        """Refuse inputs that are here already, as far as that would count them twice."""
        for run in self._seen.common_runs(other):
            raise SameInputsError(f"the run {short(run.id)} of {run.inputs:,} inputs is in both: it would count twice")
        fewer = min(self._seen.inputs, other.inputs)
        share = self._seen.overlap(other) / fewer if fewer else 0.0
        affected = [criterion.name for criterion in self.criteria if DUPLICATE_FREE not in criterion.promises]
        if share > _OVERLAP and affected and overlap == "refuse":
            raise SameInputsError(
                f"about {share:.0%} of the inputs are in both, which {affected[0]} would count twice: pass "
                'overlap="allow" (--allow-overlap) to have it so'
            )

    def _warn(self, *, of_outputs: bool = False) -> None:
        """Say every finding once; what outputs look like only once a whole data set was seen."""
        of_tap = self._tap.output_findings() if of_outputs and self._tap is not None else ()
        said = "" if self._tap is None else self._tap.known_rows.sentence
        for finding in (*of_tap, *self.findings()):
            if finding.sentence == said:
                continue  # when it was found
            key = f"{finding.criterion}: {finding.sentence.lstrip('0123456789')}"
            if key not in self._warned:
                self._warned.add(key)
                warnings.warn(str(finding), CoverageWarning, stacklevel=3)


def _other_calibration(name: str, ours: str | None, theirs: str | None, what: str) -> MismatchError:
    return MismatchError(f"{name}: calibrations differ: this coverage has {short(ours)}, {what} has {short(theirs)}")

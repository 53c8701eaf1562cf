"""Coverage: what a user holds. A model or bare layers, criteria with their states, and what calibration learnt."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from neuralcov.core.activations import Activations, home_of
from neuralcov.core.arrays import arranged, as_activations
from neuralcov.core.criterion import NOT_FINITE
from neuralcov.core.devices import usable_device
from neuralcov.core.errors import (
    CalibrationError,
    CoverageWarning,
    InputError,
    MismatchError,
    StateFileError,
)
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.core.ledger import AnyCriterion, Finding, LayerRow, Ledger, SharedStates
from neuralcov.core.ownership import Shared
from neuralcov.core.reference import Reference
from neuralcov.progress import tracked
from neuralcov.proposal import Proposal
from neuralcov.recorder import Recorder
from neuralcov.store import (
    AnyPath,
    StoredCoverage,
    load_coverage,
    load_reference,
    save_coverage,
    save_reference,
)
from neuralcov.tap import Batch, LayerChoice, Tap, Unmeasured, unpack_batch
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


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The states of a coverage at one moment, to go back to."""

    names: tuple[str, ...]
    identities: Mapping[str, str | None]
    layout: Layout | None
    states: SharedStates | None
    definitions: tuple[int, ...]


class Coverage:
    """Test coverage of a model.

    Args:
        model: any module; it is run in eval mode without gradients and left as it was.
        criteria: what to measure, for example ``[nc.NLC(), nc.NC(0.75)]``.
        layers: which modules count; see :func:`neuralcov.tap.select.choose_layers`.
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
    ) -> None:
        self._ledger = Ledger(criteria)
        self._tap: Tap | None = Tap(
            model, layers, predict=predict, batch_axis=batch_axis, device=device, mode=mode, steps=steps, rows=rows
        )
        self._recorder = Recorder(self._tap, self._ledger) if cuda_graph else None
        self._unpack = unpack
        self._loaded_rows: Mapping[str, Any] | None = None
        self._reference: Reference | None = None
        self._identities: dict[str, str | None] | None = None
        self._warned: set[str] = set()
        self._unmeasured: tuple[Layout | None, Unmeasured] | None = None

    @classmethod
    def of_layers(
        cls, widths: Mapping[str, int], criteria: Sequence[AnyCriterion], *, device: torch.device | str = "cpu"
    ) -> Self:
        """Coverage of layers whose activations somebody else computes: NumPy, JAX, TensorFlow, ONNX.

        Args:
            widths: layer → number of neurons, in execution order.
            criteria: what to measure.
            device: where statistics live.
        """
        coverage = cls._without_model(criteria)
        coverage._ledger.layout = Layout(widths, home_of(usable_device(device)))
        return coverage

    @classmethod
    def _without_model(cls, criteria: Sequence[AnyCriterion]) -> Self:
        coverage = cls.__new__(cls)
        coverage._ledger = Ledger(criteria)
        coverage._tap = None
        coverage._recorder = None
        coverage._unpack = None
        coverage._loaded_rows = None
        coverage._reference = None
        coverage._identities = None
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
            yield

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
            held_out: training inputs (or activations) kept out of ``data``, the unit of ``LVC(relative=True)``.
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
            self._fit(self._read_calibration(data))
            return
        if lengths is not None and activations is not None:
            raise InputError("lengths= goes with a loader; activations are averaged over tokens already")
        reference: Reference | None = None
        not_finite: Tensor | int = 0
        with self._first(), self.tap():
            for batch in self._batches(data, activations, labels, predictions, lengths, "calibrating", progress):
                reference = (reference or Reference.empty(batch.layout, self.criteria)).observe(batch)
                not_finite = not_finite + batch.tally[NOT_FINITE]
            if reference is None or reference.seen == 0:
                raise CalibrationError("calibration saw no input: the training data gave no batch")
            if held_out is not None:
                bare = self._tap is None or isinstance(held_out, (Mapping, Activations))
                data, activations = (None, held_out) if bare else (held_out, None)
                for batch in self._batches(data, activations, None, None, lengths, "holding out", progress):
                    reference = reference.hold_out(batch)
        self._fit(reference.finished(left_out=int(not_finite)))
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
        with self._first(), self.tap():
            for batch in self._inputs(data, lengths, "assessing", progress):
                self._take(batch)
                seen = True
        if not seen:
            raise InputError("the data gave no batch: nothing was assessed")
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
        """Take inputs in order, each only if some criterion gains by it, judged on the state it meets.

        Args:
            inputs: as for :meth:`update`, like the rest.
            labels: see there.
            activations: see there.
            predictions: see there.
            lengths: see there.
            min_gain: what the gain must exceed.

        Returns:
            Which inputs were taken, ``(batch,)``.
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

    def beside(self) -> dict[str, dict[str, float]]:
        """Figures that belong beside the values, such as a standard error, by criterion."""
        return self._ledger.beside()

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
        unmeasured = None if self.layout is None else self.unmeasured()
        if unmeasured is not None and unmeasured.noteworthy:
            found.append(Finding(_LAYERS, str(unmeasured)))
        of_tap = () if self._tap is None else self._tap.findings()
        return (*found, *of_tap, *self._ledger.findings())

    def unmeasured(self) -> Unmeasured | None:
        """The share of the model's parameters that belong to no measured layer; ``None`` without a model."""
        if self._tap is None:
            return None
        if self._unmeasured is None or self._unmeasured[0] is not self.layout:
            self._unmeasured = (self.layout, self._tap.unmeasured(self.layout))
        return self._unmeasured[1]

    # States

    def snapshot(self) -> Snapshot:
        """The present state, to return to with :meth:`restore`."""
        ledger = self._ledger
        return Snapshot(ledger.names, self.calibration_ids(), ledger.layout, ledger.share(), ledger.definitions)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this coverage or one like it."""
        if not isinstance(snapshot, Snapshot):
            raise InputError(f"a {type(snapshot).__name__} is no snapshot: expected what snapshot() gave")
        self._require_same(snapshot.names, snapshot.identities, "the snapshot")
        if self._ledger.layout is not None and snapshot.layout is not None:
            self._ledger.layout.require_same(snapshot.layout, "the snapshot")
        self._ledger.adopt(snapshot.states)
        self._ledger.definitions = snapshot.definitions

    def reset(self) -> None:
        """Empty the coverage and keep the calibration."""
        self._ledger.adopt(None)
        self._warned.clear()

    def merge(self, other: Coverage) -> None:
        """Take in what another coverage of the same model, criteria and calibration has seen."""
        self._require_same(other._ledger.names, other.calibration_ids(), "the other coverage")
        require_same_rows(self._found_rows(), other._found_rows(), "the other coverage")
        self._ledger.merge(other._ledger)

    def fork(self) -> Self:
        """Copy this coverage: the same model, options, calibration and state, and from here on independent."""
        twin = type(self).__new__(type(self))
        # All attributes first, so that options which come to be later are kept too; then what must not be shared.
        vars(twin).update(vars(self))
        twin._ledger = self._ledger.fork()
        twin._tap = None if self._tap is None else self._tap.fork()
        twin._recorder = None if self._recorder is None or twin._tap is None else Recorder(twin._tap, twin._ledger)
        twin._warned = set(self._warned)
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

    def save(self, path: AnyPath) -> None:
        """Write the states, and what calibration learnt short of traces, to one file."""
        if self._ledger.layout is None:
            raise StateFileError(f"{path}: nothing to save, no batch was observed yet")
        self._warn()
        modules = None if self._tap is None else tuple(self._tap.chosen)
        ledger, layout = self._ledger, self._ledger.layout
        content = StoredCoverage(
            layout,
            modules,
            self.criteria,
            ledger.states,
            self.calibration_ids(),
            ledger.definitions,
            self._found_rows(),
        )
        save_coverage(path, content)

    @classmethod
    def load(
        cls,
        path: AnyPath,
        model: nn.Module | None = None,
        *,
        calibration: AnyPath | None = None,
        criteria: Sequence[AnyCriterion] | None = None,
        device: torch.device | str | None = None,
        **options: Any,
    ) -> Self:
        """Go on from a saved file.

        Args:
            path: what :meth:`save` wrote.
            model: the model; without one the coverage takes activations.
            calibration: a saved calibration, for criteria whose training traces state files do not hold.
            criteria: if given, refuse a file with other criteria or hyper-parameters.
            device: where statistics go without a model; with one, as for :class:`Coverage`.
            options: further arguments of :class:`Coverage`, such as ``predict``.
        """
        if model is None and options:
            raise InputError(f"{next(iter(options))}= needs a model: pass one to load, or leave it out")
        parameter = None if model is None else next(model.parameters(), None)
        where = usable_device(device or "cpu") if parameter is None else parameter.device
        content = load_coverage(path, home_of(where))
        if criteria is not None and [c.name for c in criteria] != [c.name for c in content.criteria]:
            held, wanted = (", ".join(c.name for c in some) for some in (content.criteria, criteria))
            raise MismatchError(f"{path} holds {held}, expected {wanted}")
        if model is None:
            coverage = cls._without_model(content.criteria)
            coverage._loaded_rows = content.rows
        else:
            chosen = list(content.modules if content.modules is not None else content.layout)
            coverage = cls(model, content.criteria, layers=chosen, device=device, **options)
            assert coverage._tap is not None
            content.layout.require_modules(coverage._tap.widths(), str(path))
            coverage._tap.expect(content.layout)
            if content.rows is not None:
                coverage._tap.known_rows.expect(content.rows)
        coverage._ledger.layout = content.layout
        coverage._ledger.adopt(tuple(Shared(state) for state in content.states))
        coverage._ledger.definitions = content.definitions
        coverage._identities = dict(content.identities)
        if calibration is not None:
            coverage._supply(load_reference(calibration, home_of(where)), str(calibration))
        return coverage

    def save_calibration(self, path: AnyPath) -> None:
        """Write what calibration learnt, traces included, to one file that :meth:`calibrate` reads."""
        if self._reference is None:
            raise CalibrationError(
                "there is no calibration to save: call calibrate(...) first; a loaded state does not hold what it was "
                "calibrated on"
            )
        save_reference(path, self._reference)

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
        return as_labels(labels) if "labels" in self._ledger.needs else usable_labels(labels)

    @contextmanager
    def _first(self) -> Iterator[None]:
        """Within, a first batch that raises leaves open what it would have settled: layers and time steps."""
        unsettled = self._ledger.layout is None
        try:
            yield
        except BaseException:
            if unsettled and self._ledger.empty:
                self._ledger.layout = None
                if self._tap is not None:
                    self._tap.forget_steps()
            raise

    def _take(self, batch: Batch) -> None:
        """Observe a batch of inputs, by a recording where there is one for it."""
        if self._recorder is None or not self._recorder.update(batch):
            self._ledger.observe(self._run(batch))

    def _run(self, batch: Batch, lengths: Any = None) -> Activations:
        return self._tapped(batch, lengths)[0]

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
            yield self._batch(None, labels, activations, predictions, None)
        elif activations is not None:
            for item in tracked(activations, title, progress):
                yield self._batch(None, None, item, None, None)
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
        self._ledger.criteria = tuple(
            criterion.calibrate(reference) if criterion.learns else criterion for criterion in self.criteria
        )
        self._ledger.adopt(None)
        self._reference, self._identities = reference, None

    def _read_calibration(self, path: AnyPath) -> Reference:
        device = torch.device("cpu") if self._tap is None else self._tap.device
        reference = load_reference(path, home_of(device) if self.layout is None else self.layout.device)
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
        return reference

    def _supply(self, reference: Reference, path: str) -> None:
        """Give loaded criteria the calibration their states were made with, and no other."""
        for criterion in self.criteria:
            if criterion.learns:
                theirs = reference.identity(criterion.learns)
                _refuse_other_calibration(criterion.name, self.calibration_ids()[criterion.name], theirs, path)
        kept, definitions = self._ledger.share(), self._ledger.definitions
        self._fit(reference)
        self._ledger.adopt(kept)
        self._ledger.definitions = definitions

    def _require_same(self, names: tuple[str, ...], identities: Mapping[str, str | None], what: str) -> None:
        if names != self._ledger.names:
            raise MismatchError(
                f"criteria differ: this coverage has {', '.join(self._ledger.names)}, {what} has {', '.join(names)}"
            )
        for name, identity in self.calibration_ids().items():
            _refuse_other_calibration(name, identity, identities[name], what)

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


def _refuse_other_calibration(name: str, ours: str | None, theirs: str | None, what: str) -> None:
    if ours != theirs:
        raise MismatchError(
            f"{name}: calibrations differ: this coverage has {_short(ours)}, {what} has {_short(theirs)}"
        )


def _short(identity: str | None) -> str:
    return "none" if identity is None else identity[:12]

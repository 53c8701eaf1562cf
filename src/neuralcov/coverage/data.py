"""What a coverage has collected: values and findings to read, states to keep, merge and save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import nn

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.core.findings import Finding, LayerRow, Unmeasured
from neuralcov.core.layout import Layout
from neuralcov.coverage import calibrating, merging, reducing, saving
from neuralcov.coverage.collection import AnyCriterion, States
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.merging import Snapshot
from neuralcov.coverage.readings import require_fewer, require_more
from neuralcov.coverage.sections.telling import told_sections
from neuralcov.coverage.store import Place
from neuralcov.distributed import ranks_of
from neuralcov.report.text import layout_in_words, reference_in_words, summary
from neuralcov.results import InputTable, Results, SliceTable
from neuralcov.results.sanity import Sanity, judge_sanity
from neuralcov.results.sections import Reference
from neuralcov.statistics.calibration import Calibration


class CoverageData:
    """Hold what was measured so far. ``Coverage`` adds the ways to measure more.

    Args:
        measurement: what it is made of.
    """

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement

    def __repr__(self) -> str:
        where = "no batch yet" if self.layout is None else layout_in_words(self.layout)
        return f"{type(self).__name__}([{', '.join(criterion.name for criterion in self.criteria)}], {where})"

    def __str__(self) -> str:
        """Show the values, as far as anything was observed."""
        layout = self.layout
        if layout is None or self._measurement.collection.empty:
            return repr(self)
        title = f"{counted(self.inputs, 'input')} on {layout_in_words(layout)}"
        values, details = self.values(warn=False), self.details()
        references = {
            name: reference_in_words(values[name], details.get(name, {}), self.inputs, reference)
            for name, reference in self.references().items()
        }
        return summary(title, values, details, references)

    @property
    def criteria(self) -> tuple[AnyCriterion, ...]:
        """Return the criteria, with what calibration taught them."""
        return self._measurement.collection.criteria

    @property
    def model(self) -> nn.Module | None:
        """Return the model, or ``None`` where somebody else computes the activations."""
        return self._measurement.provenance.model

    @property
    def layout(self) -> Layout | None:
        """Return the layers, once the first batch has shown them."""
        return self._measurement.collection.layout

    @property
    def inputs(self) -> int:
        """Return how many inputs were observed, those left out included."""
        return self._measurement.collection.inputs

    @property
    def device(self) -> torch.device:
        """Return where inputs go: where the model is, or without one where statistics live."""
        return self._measurement.device

    @property
    def states(self) -> States:
        """Return one state per criterion, to read before the next update; take a ``snapshot`` to keep them."""
        return self._measurement.collection.states

    @property
    def calibration(self) -> Calibration | None:
        """Return what calibration learnt; ``None`` before it, and where a state was loaded without it."""
        return self._measurement.learnt.calibration

    def fork(self) -> Self:
        """Copy this coverage: the same model, options, calibration and state, and from here on independent."""
        twin = type(self).__new__(type(self))
        # All attributes first, so that options which come to be later are kept too; then what must not be shared.
        vars(twin).update(vars(self))
        twin._measurement = self._measurement.fork()
        return twin

    def __copy__(self) -> Self:
        return self.fork()

    def __add__(self, other: CoverageData | int) -> Self:
        """Return a new coverage of both, so that ``sum(coverages)`` works."""
        total = self.fork()
        if isinstance(other, CoverageData):
            total.merge(other)
        elif other != 0:
            return NotImplemented
        return total

    __radd__ = __add__

    # Results

    def values(self, *, warn: bool = True) -> dict[str, float]:
        """Return the value of every criterion, in the order given.

        Args:
            warn: whether to warn of ``findings`` that were not told yet.
        """
        if warn:
            self._measurement.warn()
        return self._measurement.collection.values()

    def details(self) -> dict[str, dict[str, float]]:
        """Return figures that belong beside the values, such as a standard error, by criterion."""
        return self._measurement.collection.details()

    def rarefied(self, inputs: int) -> dict[str, tuple[float, float]]:
        """Return value and deviation of so many of the observed inputs, drawn at random, for criteria that count kinds.

        Suites of different sizes are compared at the size of the smaller one. The deviation is that between such draws,
        0 for all inputs; it says nothing about other suites.

        Args:
            inputs: how many, at most those that were observed.
        """
        require_fewer(inputs, self.inputs)
        found = self._measurement.collection.rarefied(inputs)
        return {name: (estimate.value, estimate.error) for name, estimate in found.items()}

    def forecast(self, inputs: int) -> dict[str, float]:
        """Return the values to expect of so many inputs of the same sort, for criteria that count kinds.

        Good for about as many inputs again as were observed; for LCC beyond, as far as training data reach.

        Args:
            inputs: how many in all, at least those that were observed.
        """
        require_more(inputs, self.inputs)
        return self._measurement.collection.forecast(inputs)

    def lacking(self, suite: CoverageData) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Return how often inputs here showed each kind that a suite lacks, by criterion and column of kinds.

        Args:
            suite: a coverage of the same model, criteria and calibration.
        """
        return merging.lacking(self._measurement, suite._measurement)

    def by_layer(self) -> tuple[LayerRow, ...]:
        """Return one row per layer, with ``layer``, ``neurons``, ``values``, and ``figures`` such as LCC.relative."""
        return self._measurement.collection.by_layer()

    def by_slice(self) -> tuple[SliceTable, ...]:
        """Return what slices cover, a table for each column of the last ``assess(..., slices=...)``.

        There is none once anything else was observed, merged or restored.
        """
        return self._measurement.last_assessed.slices

    @property
    def input_table(self) -> InputTable | None:
        """Return the table of all inputs, where ``assess`` or a file kept it; ``None`` elsewhere."""
        return self._measurement.last_assessed.table

    def per_input(self) -> InputTable:
        """Return the table of the last ``assess(..., per_input=True)``, if nothing else was observed since."""
        table = self.input_table
        if table is None:
            raise InputError("there is no table of inputs: call assess(..., per_input=True), and read it right after")
        return table

    def sanity(self) -> Sanity:
        """Return what to look at first: accuracy, classes, inputs unlike training, duplicates, and alarms."""
        return judge_sanity(self._measurement.facts(), self.details())

    def uncovered(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return, by criterion and layer, the numbers of the neurons of which nothing is covered.

        For criteria that tick off cells of neurons; layers where every neuron has a covered cell are not there.
        """
        return self._measurement.collection.uncovered()

    def findings(self) -> tuple[Finding, ...]:
        """List what was left out of the measurement, and what to bear in mind when reading it."""
        return self._measurement.findings()

    def results(
        self,
        *,
        model: str = "",
        suite: str = "",
        inputs: int | None = None,
        before: Mapping[str, float] | None = None,
        weights: str | None = None,
        notes: Sequence[str] = (),
        missing: bool = False,
    ) -> Results:
        """Return all that reports render, as plain data.

        Args:
            model: what to call the model.
            suite: what to call the inputs.
            inputs: how many inputs the suite has; by default all that were observed.
            before: values that the suite was added to.
            weights: where the model's weights come from.
            notes: sentences to show beside the results.
            missing: whether to name the neurons of which nothing is covered.
        """
        return Results(
            model=model,
            suite=suite,
            inputs=self.inputs if inputs is None else inputs,
            values=self.values(),
            details=self._measurement.collection.details(alone=before is None),
            layers=self._measurement.collection.by_layer(alone=before is None),
            findings=tuple(str(finding) for finding in self.findings()),
            calibration=self.calibration_ids(),
            before=before,
            weights=weights,
            notes=(*notes, *self._measurement.last_assessed.notes),
            unmeasured=self.unmeasured(),
            definitions=dict(self._measurement.collection.definitions),
            model_id=self._measurement.model_id(),
            sanity=self.sanity() if before is None else None,
            missing=self.uncovered() if missing else {},
            slices=self.by_slice(),
            **told_sections(self._measurement, alone=before is None),
            references=self.references() if before is None else {},
        )

    def references(self) -> dict[str, Reference]:
        """Return, by criterion, what as many held-out training inputs show, where ``calibrate(held_out=...)`` had some.

        For criteria that do not say themselves what they are relative to training data, as LCC does.
        """
        return self._measurement.references()

    def unmeasured(self) -> Unmeasured | None:
        """Return the share of the model's parameters that belong to no measured layer; ``None`` without a model."""
        return self._measurement.unmeasured()

    def provenance(self) -> dict[str, Any]:
        """Return where the measurement comes from: model, calibration, preprocessing, versions, device."""
        return self._measurement.describe()

    # States

    def snapshot(self) -> Snapshot:
        """Return the present state, to go back to with ``restore``."""
        return merging.take_snapshot(self._measurement)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this coverage or one like it."""
        merging.restore(self._measurement, snapshot)

    def reset(self) -> None:
        """Empty the coverage and keep the calibration."""
        with self._measurement.collection.turn:
            self._measurement.clear()
        self._measurement.warned.clear()

    def merge(self, other: CoverageData, *, overlap: str = "refuse") -> None:
        """Take in what another coverage of the same model, criteria and calibration has seen.

        Args:
            other: the other coverage, which stays as it is.
            overlap: what to do if more than one per cent of the smaller suite's inputs are in both and a criterion
                takes part to which duplicates matter: ``"refuse"`` or ``"allow"``. A run that is in both, such as a
                file loaded twice, is refused by both; ``"repeat"`` takes it in again, for processes and tests that
                ran the same inputs.
        """
        merging.merge(self._measurement, other._measurement, overlap)

    def reduce(self, group: Any = None, *, timeout: float | None = None) -> None:
        """Replace the state of this process by those of all processes together, the same in each to the bit.

        Every process calls it, those without inputs too. A second call after further inputs is refused, as the earlier
        ones would count once for every process: call ``reset`` first, or use ``assess(..., group=)``.

        Args:
            group: of ``torch.distributed``; ``None`` is that of all processes.
            timeout: seconds after which a silent rank is given up with an error; by default the group's own timeout.
        """
        reducing.reduce(self._measurement, ranks_of(group, timeout))

    def has_runs_of(self, other: CoverageData) -> bool:
        """Return whether every run of another coverage is in this one, so that there is nothing to merge."""
        theirs = other._measurement.seen
        return bool(theirs.runs) and len(self._measurement.seen.common_runs(theirs)) == len(theirs.runs)

    def save(self, path: Place, *, end_run: bool = True, inputs: bool = True) -> None:
        """Write the states, and what calibration learnt short of traces, to one file.

        Args:
            path: a path, a URL (``s3://…``, by fsspec) or an open binary file; a file is complete or as it was before.
            end_run: whether inputs to come are another run, so that this file and a later one are known to share these.
            inputs: whether to keep what shows or names an input, where ``assess`` kept that: the table, pictures, the
                map, names of excluded inputs. Content keys are another matter, see ``keys=`` of ``Coverage``.
        """
        saving.require_layers(self._measurement, path)
        self._measurement.warn()
        saving.save(self._measurement, path, end_run=end_run, inputs=inputs)

    def to_bytes(self) -> bytes:
        """Return what ``save`` would write, to be sent elsewhere."""
        return saving.to_bytes(self._measurement)

    def load_state(self, path: Place, *, same_run: bool = False) -> None:
        """Replace the state of this coverage by that of a file of the same model, criteria and calibration.

        Args:
            path: what ``save`` wrote: a path, a URL or an open binary file.
            same_run: whether inputs to come belong to the file's last run, which was interrupted.
        """
        saving.load_state(self._measurement, path, same_run=same_run)

    def save_calibration(self, path: Place) -> None:
        """Write what calibration learnt, traces included, to one file that ``calibrate`` reads.

        Args:
            path: as for ``save``.
        """
        calibrating.save_calibration(self._measurement, path)

    def calibration_ids(self) -> dict[str, str | None]:
        """Return, by criterion, the SHA-256 of what it learnt; ``None`` for one that learnt nothing."""
        return self._measurement.learnt_ids()

    def has_calibration(self, name: str, identity: str | None) -> bool:
        """Return whether what a criterion learnt is known by this id, today or in files of schema 1.

        Args:
            name: of the criterion.
            identity: as ``calibration_ids`` or a file gives it.
        """
        return self._measurement.has_learnt(name, identity)

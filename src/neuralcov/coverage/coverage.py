"""Coverage: what a user holds. Give it batches; read values, keep states and files off it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

import torch
from typing_extensions import override

from neuralcov.core.activations import Activations, statistics_device
from neuralcov.core.arguments import usable_device
from neuralcov.core.errors import InputError
from neuralcov.core.files import name_of
from neuralcov.core.layout import Layout
from neuralcov.coverage import assessing, calibrating, reducing, saving
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.collection import AnyCriterion, CriterionCollection
from neuralcov.coverage.evidence import EvidenceCoverage
from neuralcov.coverage.judging import JudgingCoverage
from neuralcov.coverage.listening import ListeningCoverage
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.reporting import ReportingCoverage
from neuralcov.coverage.seen import KeyRule, SeenInputs
from neuralcov.coverage.store import Place
from neuralcov.coverage.uniting import UnitingCoverage
from neuralcov.distributed import ranks_of
from neuralcov.tap import Batch, LayerChoice, Tap
from neuralcov.tap.foreign import as_module
from neuralcov.tap.inputs import Lengths, Unpack
from neuralcov.tap.known_rows import pool_of
from neuralcov.tap.rows import Rows


class Coverage(ListeningCoverage, JudgingCoverage, ReportingCoverage, EvidenceCoverage, UnitingCoverage):
    """Measure the test coverage of a model.

    Args:
        model: any module; it is run in eval mode without gradients and left as it was. Or a Keras model, or a file
            that ends in ``.onnx``.
        criteria: what to measure, for example ``[nc.NLC(), nc.NC(0.75)]``.
        layers: which modules count; see ``neuralcov.tap.layers.choose_layers``.
        predict: from the model's output to one class per input, where the usual reading does not fit.
        batch_axis: the axis of the first input that is the batch.
        device: where inputs go; by default where the model is.
        mode: ``"eval"``, or ``"keep"`` to leave dropout and the like as they are.
        unpack: from what a loader yields to ``(inputs, labels)``, or to ``(inputs, labels, batch)`` where tensors
            disagree: batch is the number of inputs, or the name of the tensor with one row per input; or to a
            ``Batch``, which may also hold ids and metadata of the inputs.
        metadata: where a loader yields mappings, the keys that hold metadata and no inputs.
        rows: from a layer's name and its output to the input that each row of axis 0 belongs to, -1 for none, for
            layers whose rows do not follow the batch (experts); ``None`` leaves a layer to what ``probe`` finds.
        steps: time steps of recurrent layers; by default those of the first batch.
        pool: what a neuron is over the unmasked tokens of an input: their ``"mean"``, the ``"last"`` of them, or their
            ``"max"``; or ``"tokens"``, where every unmasked token is an input of its own, with the label, predicted
            class and name of the input that it is of. Convolutions are averaged whatever it says.
        cuda_graph: record updates as CUDA graphs, one per shape of input, and replay them: much faster at small
            batches. By ``"auto"`` for a model on one GPU of whose passes nothing is known to speak against it, once a
            replay gave the same numbers as plain calls; ``explain`` says what was done and why. With ``True``
            unseen: what the model decides in Python is then decided once. Without effect on a CPU.
        preprocessing: what was done to the inputs, as text or plain data; files keep it, and coverages of other
            preprocessing are not merged.
        keys: by what files tell inputs apart, so that none counts twice: ``"plain"`` keys of their content, which show
            whoever has an input whether it is among them; ``"salted"`` ones, which show it only to those who have the
            salt; or ``"none"``.
        salt: a text of your own, for salted keys.
        memory: the most that each criterion may take, such as ``"4GiB"``, where the criterion has no limit of its own;
            layers that need more are refused before anything is allocated, and training data go to disk beyond it.

    Examples:
        >>> import torch, neuralcov as nc
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> cov = nc.Coverage(model, [nc.NC(0.5), nc.TKNC(1)])
        >>> cov.update(torch.eye(4))
        >>> sorted(cov.values())
        ['NC(0.5)', 'TKNC(1)']
    """

    def __init__(
        self,
        model: Any,
        criteria: Sequence[AnyCriterion],
        *,
        layers: LayerChoice = None,
        predict: Callable[[Any], Any] | None = None,
        batch_axis: int = 0,
        device: torch.device | str | None = None,
        mode: str = "eval",
        unpack: Unpack | None = None,
        metadata: Sequence[str] = (),
        rows: Rows | None = None,
        steps: int | None = None,
        pool: str = "mean",
        cuda_graph: bool | Literal["auto"] = "auto",
        preprocessing: Any = None,
        keys: str = "plain",
        salt: str | bytes | None = None,
        memory: str | int | None = None,
    ) -> None:
        collection = CriterionCollection(criteria, SeenInputs(KeyRule.of(keys, salt)), memory)
        tap = Tap(
            model,
            layers,
            predict=predict,
            batch_axis=batch_axis,
            device=device,
            mode=mode,
            steps=steps,
            rows=rows,
            pool=pool,
        )
        super().__init__(Measurement(collection, tap, preprocessing))
        self._reader = BatchReader(self._measurement, unpack, metadata=metadata, cuda_graph=cuda_graph)

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
        memory: str | int | None = None,
    ) -> Self:
        """Measure layers whose activations somebody else computes: NumPy, JAX, TensorFlow, ONNX.

        Args:
            widths: layer → number of neurons, in execution order.
            criteria: what to measure.
            device: where statistics live.
            preprocessing: as for ``Coverage``, like the rest.
            keys: see there; inputs are told apart by their activations.
            salt: see there.
            memory: see there.
        """
        coverage = cls._without_model(criteria, preprocessing, KeyRule.of(keys, salt), memory)
        coverage._measurement.collection.layout = Layout(widths, statistics_device(usable_device(device)))
        return coverage

    @override
    def fork(self) -> Self:
        twin = super().fork()
        twin._reader = self._reader.fork(twin._measurement)
        twin._listening = None
        return twin

    def tap(self) -> AbstractContextManager[None]:
        """Return a block within which hooks stay in place, for many single calls in a row."""
        return self._reader.open()

    def explain(self) -> str:
        """Say whether updates were recorded as CUDA graphs, in this block or the last one, and why others were not."""
        return self._reader.explain()

    @property
    def pool(self) -> str:
        """What is made of the tokens of an input."""
        tap = self._measurement.tap
        return "mean" if tap is None else tap.known_rows.pool

    def probe(self, inputs: Any) -> None:
        """Find out which rows of each layer's output belong to which input; nothing is observed.

        The first batch of two or more inputs does the same by itself.

        Args:
            inputs: two or more, as for ``update``.
        """
        self._reader.tap(hint="").probe(Batch(inputs))

    def calibrate(
        self,
        data: Iterable[Any] | Place | None = None,
        *,
        activations: Mapping[str, Any] | Activations | Iterable[Any] | None = None,
        labels: Any = None,
        predictions: Any = None,
        held_out: Iterable[Any] | float | None = None,
        lengths: Lengths | None = None,
        progress: bool | None = None,
    ) -> None:
        """Learn from training data, in one pass for all criteria; coverage is empty afterwards.

        Args:
            data: a loader of training batches, or a saved calibration: a path, a URL or an open binary file.
            activations: in place of data, ``{layer: (batch, neurons)}`` or several such mappings.
            labels: with a single mapping of activations.
            predictions: with a single mapping of activations.
            held_out: training inputs (or activations) kept out of ``data``, or the share of the data to keep out,
                chosen by content: the reference of every criterion, and what ``LVC(relative=True)`` divides by.
            lengths: where inputs are padded, from what the loader yields to one length per input, or the key under
                which its mappings hold the lengths.
            progress: show a bar; by default only in a terminal.
        """
        learnt_from_data = calibrating.calibrate(
            self._measurement,
            self._reader,
            data,
            activations=activations,
            labels=labels,
            predictions=predictions,
            held_out=held_out,
            lengths=lengths,
            progress=progress,
        )
        if learnt_from_data:
            self._measurement.warn(of_outputs=True)

    def assess(
        self,
        data: Iterable[Any],
        *,
        lengths: Lengths | None = None,
        progress: bool | None = None,
        slices: Sequence[str] = (),
        per_input: bool = False,
        keep_inputs: bool = False,
        gains: Sequence[str] = (),
        group: Any = None,
        sync: str = "end",
        timeout: float | None = None,
    ) -> None:
        """Update with every batch of a loader; one forward pass feeds all criteria.

        Args:
            data: a loader of batches.
            lengths: where inputs are padded, from what the loader yields to one length per input, or the key under
                which its mappings hold the lengths.
            progress: show a bar; by default only in a terminal.
            slices: columns of metadata, or ``"class"`` (the label where known, else the prediction): what the inputs
                of each value cover alone and what all would lose without them, for ``by_slice``.
            per_input: whether to note what every input shows first, for ``per_input``.
            keep_inputs: whether to keep what reports show of inputs too: small pictures of at most 64, the table, and
                where the suite lies beside training data. State files then hold these.
            gains: names of criteria whose gains the table tells too, each input's alone on what was there before its
                batch: for NLC and LVC, which count nothing that an input could be the first to show.
            group: of ``torch.distributed``, such as ``torch.distributed.group.WORLD``, whose processes each give the
                batches of a shard and all end with the state of the whole suite. A shard may be empty.
            sync: with a group, ``"end"`` merges the states at the end; ``"step"`` has all processes observe, in every
                step, the batches of all as one, in the order of the ranks: for criteria that depend on order.
            timeout: with a group, seconds after which a rank that does not answer is given up with an error.
        """
        assessing.assess_group(
            self._measurement,
            self._reader,
            data,
            ranks_of(group, timeout) if group is not None else None,
            sync,
            lengths=lengths,
            progress=progress,
            slices=slices,
            per_input=per_input,
            keep_inputs=keep_inputs,
            gains=gains,
        )
        self._measurement.warn(of_outputs=True)

    def update(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> None:
        """Observe one batch.

        Args:
            inputs: a tensor, a tuple of inputs, a mapping of keyword inputs, or a ``Batch`` of any of these.
            labels: one class per input, where known; targets of any other form are not used.
            activations: in place of inputs, ``{layer: (batch, neurons)}``.
            predictions: with activations, one predicted class per input.
            lengths: time steps of each input, where shorter ones are padded.
        """
        self._reader.observe(inputs, labels, activations, predictions, lengths)

    @classmethod
    def load(
        cls,
        path: Place | bytes,
        model: Any = None,
        *,
        calibration: Place | None = None,
        criteria: Sequence[AnyCriterion] | None = None,
        device: torch.device | str | None = None,
        preprocessing: Any = None,
        keys: str = "plain",
        salt: str | bytes | None = None,
        **options: Any,
    ) -> Self:
        """Go on from a saved file.

        Args:
            path: what ``save`` wrote: a path, a URL, an open binary file, or the bytes of it.
            model: the model, with the weights the file was measured on; without one the coverage takes activations.
            calibration: a saved calibration, for criteria whose training traces state files do not hold.
            criteria: if given, refuse a file with other criteria or hyper-parameters.
            device: where statistics go without a model; with one, as for ``Coverage``.
            preprocessing: if given, refuse a file of another one.
            keys: as for ``Coverage``. Inputs to come have keys in a file only if those in it are of this kind.
            salt: see there.
            options: further arguments of ``Coverage``, such as ``predict``.
        """
        if model is None and options:
            raise InputError(f"{next(iter(options))}= needs a model: pass one to load, or leave it out")
        name, model = "the bytes" if isinstance(path, bytes) else name_of(path), as_module(model)
        parameter = None if model is None else next(model.parameters(), None)
        where = usable_device(device or "cpu") if parameter is None else parameter.device
        rule = KeyRule.of(keys, salt)
        content = saving.read(path, name, where, rule, criteria)
        if model is None:
            coverage = cls._without_model(content.criteria, preprocessing, rule)
        else:
            options.update(device=device, preprocessing=preprocessing, keys=keys, salt=salt)
            options.setdefault("pool", pool_of(content.rows))
            coverage = cls(model, content.criteria, layers=content.chosen, **options)
        saving.start_from(coverage._measurement, content, name)
        if calibration is not None:
            calibrating.supply_calibration(coverage._measurement, calibration, where)
        return coverage

    @classmethod
    def from_bytes(cls, data: bytes, model: Any = None, **options: Any) -> Self:
        """Go on from what ``to_bytes`` gave; the options are those of ``load``."""
        return cls.load(data, model, **options)

    def unite(self, group: Any = None, *, timeout: float | None = None) -> Self:
        """Return one coverage of the layers of all processes, each of which holds a stage of a pipeline.

        It has no model, is the same in each process, and its values are those of one process that holds the whole
        network. Every process calls it, after all observed the same inputs; see ``united``, with ``over="stages"``.

        Args:
            group: of ``torch.distributed``, its ranks in the order of the stages; ``None`` is that of all processes.
            timeout: seconds after which a silent rank is given up with an error; by default the group's own timeout.
        """
        return self._holding(reducing.unite(self._measurement, ranks_of(group, timeout)))

    def own_states(self) -> None:
        """Let merging overwrite states that were just loaded, and that nobody else has."""
        self._measurement.collection.own()

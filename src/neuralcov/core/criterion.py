"""What a criterion is: frozen hyper-parameters and pure folds over batches.

Write one by subclassing ``Criterion`` or a base of others; ``docs/adding-a-criterion.md`` has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor

from neuralcov.core.abundance import Estimate
from neuralcov.core.activations import Activations
from neuralcov.core.arguments import format_value, plain_key
from neuralcov.core.cost import Cost, Workload, tensor_bytes
from neuralcov.core.counts import NOT_FINITE, NOT_PLACEABLE, VALID, count_exclusions, no_counts
from neuralcov.core.errors import CalibrationError
from neuralcov.core.hyper_parameters import is_resource, parameters_of
from neuralcov.core.layout import Layout
from neuralcov.core.memory import parse_bytes
from neuralcov.core.optional_figures import OptionalFigures
from neuralcov.core.records import Record
from neuralcov.core.registry import register
from neuralcov.core.shapes import Bool, Float, Int

if TYPE_CHECKING:
    from neuralcov.statistics.calibration import Calibration
    from neuralcov.statistics.statistic import Statistic

NEVER_FALLS = "never falls"
ORDER_FREE = "order-free"
SPLIT_FREE = "split-free"
MERGE_EXACT = "merge exact"
DUPLICATE_FREE = "a duplicate adds nothing"
SUBMODULAR = "submodular"
ALL_PROMISES = frozenset({NEVER_FALLS, ORDER_FREE, SPLIT_FREE, MERGE_EXACT, DUPLICATE_FREE, SUBMODULAR})


@dataclass(frozen=True, eq=False)
class State(Record, name="state"):
    """Base of all states.

    ``counts`` says how many inputs took part and how many were excluded; see ``neuralcov.core.counts``.
    ``widths`` are the layers' neurons in execution order; per-group tensors follow from them.
    """

    counts: Int[Tensor, "3"]
    widths: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout, **fields: Any) -> Self:
        """Return a state that has observed nothing, with its own fields as given."""
        return cls(counts=no_counts(layout), widths=widths_of(layout), **fields)

    @property
    def neurons(self) -> int:
        """Return the total number of neurons, the N of the definitions."""
        return sum(self.widths)


StateT = TypeVar("StateT", bound=State)


def with_excluded(state: StateT, exclusions: Int[Tensor, "batch"]) -> StateT:
    """Add the excluded ones of some inputs to the counts of a state, and change nothing else."""
    return replace(state, counts=state.counts + count_exclusions(exclusions).to(state.counts.device))


def widths_of(layout: Layout) -> tuple[int, ...]:
    """Return the number of neurons of each layer, as states keep it."""
    return tuple(layout.widths.values())


@dataclass(frozen=True, eq=False)
class Criterion(OptionalFigures[StateT], ABC, Generic[StateT]):
    """A rule that turns activations into a coverage value.

    A criterion is a frozen dataclass of hyper-parameters and holds no coverage of its own: states go
    in and come out. ``learnt`` holds what calibration learnt and is ``None`` before. ``memory`` is the most that may be
    taken, such as ``"16GiB"``; where layers need more, they are refused before anything is allocated.
    """

    learnt: Any = field(default=None, kw_only=True, repr=False)
    # Not by resource(), which type checkers do not see through.
    memory: str | int = field(default="16GiB", kw_only=True, metadata={"resource": True})

    known: ClassVar[dict[str, type[Criterion[Any]]]] = {}
    definition: ClassVar[int] = 1
    """Number of the definition that values follow; raised when their meaning changes."""

    of_one_suite: ClassVar[frozenset[str]] = frozenset()
    """Figures of ``details`` that mean nothing once a suite was measured on top of other inputs."""

    is_base: ClassVar[bool] = False
    waits: ClassVar[str | None] = None
    """How batches may be observed later with the same state to the last bit: ``"joined"`` as one, or ``"apart"``."""

    def __init_subclass__(cls, *, base: bool = False, **kwargs: Any) -> None:
        """Register a criterion under its name; ``base`` marks a class that others build on and nobody uses itself."""
        super().__init_subclass__(**kwargs)
        cls.is_base = base
        if not cls.__name__.startswith("_"):
            register(cls)

    def __post_init__(self) -> None:
        """Check hyper-parameters."""
        parse_bytes(self.memory)

    @cached_property
    def name(self) -> str:
        """Name the class, then the arguments that differ from their defaults, the first positional one always.

        Limits on resources are no part of it: criteria of one name measure the same.
        """
        parts = []
        identifying = (parameter for parameter in parameters_of(type(self)) if not is_resource(parameter))
        for index, parameter in enumerate(identifying):
            value = getattr(self, parameter.name)
            if index == 0 and not parameter.kw_only:
                parts.append(format_value(value))
            elif value != parameter.default:
                parts.append(f"{parameter.name}={format_value(value)}")
        return type(self).__name__ + (f"({', '.join(parts)})" if parts else "")

    @property
    def key(self) -> str:
        """The name as trackers of experiments accept it, such as ``nc_0.75``."""
        return plain_key(self.name)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the hyper-parameters by name, as stored in files."""
        return {f.name: getattr(self, f.name) for f in parameters_of(type(self))}

    @property
    def needs(self) -> frozenset[str]:
        """Return what a batch must carry besides activations: of ``labels``, ``predictions``, ``relevance``."""
        return frozenset()

    @property
    def wants(self) -> frozenset[str]:
        """Return what a batch carries where it can be had, and may lack: ``predictions``."""
        return frozenset()

    @property
    def learns(self) -> frozenset[Statistic[Any]]:
        """Return the statistics that calibration must gather, for example ``frozenset({Ranges()})``."""
        return frozenset()

    @property
    @abstractmethod
    def promises(self) -> frozenset[str]:
        """Return the laws this criterion obeys, of ``ALL_PROMISES``; each is tested."""

    @property
    def exclusion_reason(self) -> str:
        """Return why inputs with finite outputs may be left out, for messages."""
        return "their classes did not occur in calibration or lie out of range"

    @property
    def fixed_size(self) -> bool:
        """Return whether states keep their shape and ``observe`` never waits, so that it can be recorded."""
        return False

    def calibrate(self, calibration: Calibration) -> Self:
        """Return a copy that has learnt; by default it keeps what its one statistic gathered."""
        if not self.learns:
            return self
        (statistic,) = self.learns
        return replace(self, learnt=calibration[statistic])

    @abstractmethod
    def init(self, layout: Layout) -> StateT:
        """Return the state that has seen nothing."""

    def cost(self, layout: Layout, workload: Workload) -> Cost:
        """Return what the state takes of layers on the meta device; by default what the empty state does."""
        return Cost(tensor_bytes(self.init(layout)))

    @abstractmethod
    def observe(self, state: StateT, batch: Activations, *, donate: bool = False) -> StateT:
        """Return the state after ``batch``.

        Pure: ``state`` stays valid, and no later donated ``observe`` of the result writes to it, nor one of
        ``state`` to the result. With ``donate=True`` the caller gives ``state`` up, and its tensors may be
        overwritten; the batch's may not.
        """

    def prepare(self, batch: Activations) -> None:
        """Compute of a batch, to be shared, what ``observe`` will need and can be had without waiting for the device.

        For criteria whose states grow: this part is recorded with the forward pass where updates are.
        """
        return

    @abstractmethod
    def merge(self, a: StateT, b: StateT) -> StateT:
        """Return the state of two suites together; it may share tensors with both, which stay valid."""

    def merge_in(self, a: StateT, b: StateT) -> StateT:
        """Return the same as ``merge``; the caller gives ``a`` up, and its tensors may be overwritten.

        Override it for large states, so that merging many takes the memory of two.
        """
        return self.merge(a, b)

    @abstractmethod
    def value(self, state: StateT) -> Float[Tensor, ""]:
        """Return the coverage, 0-d float64 on the state's device."""

    def by_layer(self, state: StateT) -> Float[Tensor, "layers"] | None:
        """Return the value of each layer, or ``None`` where a layer has no value of its own."""
        return None

    def uncovered(self, state: StateT) -> tuple[Bool[Tensor, "width"], ...] | None:
        """Return, for each layer, the neurons of which nothing is covered; ``None`` where no neuron has cells."""
        return None

    def gain(self, state: StateT, batch: Activations) -> Float[Tensor, "batch"]:
        """Return how far each input alone would move the value. This default does just that, one by one."""
        before = self.value(state)
        alone = [self.value(self.observe(state, batch.take(slice(i, i + 1)))) for i in range(batch.size)]
        return torch.stack(alone) - before if alone else before.new_zeros(0)

    def admit(
        self, state: StateT, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], StateT]:
        """Observe inputs in order, each only if its gain on the state it meets exceeds ``min_gain``.

        Excluded inputs are never admitted, and counted. If nothing is admitted, nothing else changes.

        Returns which inputs were admitted, and the state after them, which may share tensors with ``state``;
        that one stays valid.
        """
        exclusions = self.exclusions(batch)
        valid = exclusions == VALID
        if min_gain < 0 and {NEVER_FALLS, SPLIT_FREE} <= self.promises:
            # No gain is negative, so that every input which is not excluded exceeds the limit.
            return valid, self.observe(state, batch)
        admitted = torch.zeros(batch.size, dtype=torch.bool, device=batch.device)
        for index in valid.nonzero()[:, 0].tolist():
            alone = batch.take(slice(index, index + 1))
            if float(self.gain(state, alone)) > min_gain:
                state = self.observe(state, alone)
                admitted[index] = True
        return admitted, with_excluded(state, exclusions)

    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        """Return, for each input, ``VALID`` or why ``observe`` excludes it: ``NOT_FINITE`` or ``NOT_PLACEABLE``.

        This default sees what ``observe`` counts, and looks at both halves of a batch that it partly excludes.
        """
        counts = self.observe(self.init(batch.layout), batch).counts.tolist()
        for reason in (VALID, NOT_FINITE, NOT_PLACEABLE):
            if counts[reason] == batch.size:
                return torch.full((batch.size,), reason, device=batch.device)
        if batch.size == 1:
            return torch.full((1,), VALID, device=batch.device)
        middle = batch.size // 2
        return torch.cat([self.exclusions(batch.take(part)) for part in (slice(0, middle), slice(middle, batch.size))])

    def first_shown(self, state: StateT, batch: Activations) -> Int[Tensor, "batch"] | None:
        """Count the cells or kinds each input is the first to show, after those before it; ``None``: not counted."""
        return None

    def score(self, batch: Activations) -> Float[Tensor, "batch"] | None:
        """Return the surprise of each input, where the criterion has one."""
        return None

    def likeness(self, batch: Activations) -> Int[Tensor, "batch"] | None:
        """Return a random word for each input, the same for inputs that are alike in every layer; ``None``: no idea."""
        return None

    def details(self, state: StateT) -> Mapping[str, float]:
        """Return figures to show beside the value, such as its standard error. May wait for the device."""
        return {}

    @property
    def rarefies(self) -> bool:
        """Whether a state tells the value of fewer inputs, so that nothing needs noting on the way."""
        return type(self).rarefied is not Criterion.rarefied

    def rarefied(self, state: StateT, inputs: int) -> Estimate | None:
        """Return the value of so many inputs drawn at random, where it can be told. May wait for the device."""
        return None

    def lacking(self, field: StateT, suite: StateT) -> tuple[Int[Tensor, "kinds"], ...] | None:
        """Return, for each column of kinds, how often inputs of ``field`` showed each kind that ``suite`` lacks."""
        return None

    def forecast(self, state: StateT, inputs: int) -> float | None:
        """Return the value to expect of so many inputs of the same sort, more than there were, where it can be told.

        May wait for the device.
        """
        return None

    def forecast_error(self, state: StateT, inputs: int) -> float | None:
        """Return the standard error of what `forecast` says, where it can be told. May wait for the device."""
        return None

    def notes(self, state: StateT) -> tuple[str, ...]:
        """Return sentences a person should read beside the value. May wait for the device."""
        return ()

    def undefined(self, state: StateT) -> str:
        """Say why the value is not a number, for the error that is raised in its place. May wait for the device."""
        return "the state holds numbers that are not finite"

    def for_state_file(self) -> Any:
        """Return the part of ``learnt`` that state files hold, so that a loaded file goes on by itself."""
        return self.learnt

    def template(self, layout: Layout) -> StateT:
        """Return the form of a state, to check files against: the empty one, here on the meta device.

        An axis of length 0 may have any length. Override it where the empty state has ``None`` for parts to come.
        """
        return self.init(layout)

    def learnt_template(self, layout: Layout) -> tuple[Any, Any] | None:
        """Return the form of what ``for_state_file`` gives, and of the least it may give, to check files against.

        ``None``: do not check it.
        """
        if type(self).calibrate is Criterion.calibrate:
            return next((statistic.template(layout) for statistic in self.learns), None)
        return None

    def older_forms(self, layout: Layout) -> tuple[State, ...]:
        """Return forms of states that files may hold in place of today's; ``upgrade`` turns them into that."""
        return ()

    def upgrade(self, learnt: Any, state: Any, layout: Layout) -> tuple[Any, Any]:
        """Return what an earlier version learnt and kept in today's form, with the values that it had."""
        return learnt, state

    def require_learnt(self) -> Any:
        """Return what calibration learnt, or the error that says it is missing."""
        if self.learnt is None:
            raise CalibrationError(
                f"{self.name} needs calibration: call calibrate(...) with training data before measuring, load a state "
                "with calibration= a saved one, or give --calibrate on the command line"
            )
        return self.learnt

"""LCC, layer cell coverage: how much of the ground that training data mapped a suite walks over, kind by kind.

A kind is where a layer's output lies, coarsely (``boxes.py``), together with what the model decided. Training data are
counted once (``projections.py``), and rare kinds weigh more (``training.py``). The suite's kinds are a set with counts,
so that nothing depends on order or on how the suite is cut; figures beside the value follow from the counts as
ecologists do it with species (``figures.py``, ``neuralcov.core.abundance``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.abundance import Estimate
from neuralcov.core.activations import Activations
from neuralcov.core.cost import Cost, Workload
from neuralcov.core.counted import counted
from neuralcov.core.counts import VALID
from neuralcov.core.errors import CalibrationError, InputError
from neuralcov.core.layout import Layout
from neuralcov.core.memory import show_bytes
from neuralcov.core.shapes import Float, Int
from neuralcov.criteria.bottom_kinds import sample
from neuralcov.criteria.distinct import ABSENT, DistinctCriterion, DistinctState
from neuralcov.criteria.lcc.boxes import boxes_and_kinds, offsets, present, project, starts
from neuralcov.criteria.lcc.figures import SuiteKinds, numbers_of, over_layers
from neuralcov.criteria.lcc.projections import Projections
from neuralcov.criteria.lcc.training import NEW_DECISION, OFF_THE_MAP, TrainingKinds, TrainingTable
from neuralcov.statistics.statistic import Statistic

# A larger table of training kinds stays in the saved calibration.
_LARGEST_TABLE = 32_000_000
# With fewer layers a median is moved by any of them.
_MANY_LAYERS = 5


@dataclass(frozen=True, eq=False)
class LCC(DistinctCriterion):
    """Layer cell coverage, neuralcov's own: kinds of behaviour, counted as ecologists count species.

        value of a layer = Σ w over kinds the suite shows / Σ w over kinds of training data,    w(kind) = 1/√c
        LCC = median over layers

    A kind is the box in which a layer's output lies, along a few random directions, together with the class that the
    model chose; c is the number of training inputs that show it. A kind that none shows weighs 1 if training shows its
    box with another decision, and 0 if not: what lies off the map is counted beside the value, not in it. Without
    predictions, which calibration settles, kinds are boxes. The value may exceed 1, since new decisions count.

    For people, gates and comparisons read ``relative`` beside it: 1.0 says, as varied as the same number of fresh
    training inputs, whatever the size of the suite. ``off_map`` says how many inputs lie where no training input did.

    Args:
        resolution: steps of a box per standard deviation of training data.
        directions: how many random directions a layer is looked at along.
        over: how layers are brought together: ``"median"``, ``"mean"`` (a plain sum over kinds, for guides, ``admit``
            and ``minimise``) or ``"trimmed"``, the mean without the lowest and the highest quarter.
        seed: of directions and offsets.
        sketch: keep only so many kinds of each layer, those of smallest key: all sums over kinds are then estimates
            with a relative error of about 1/√sketch, and exact below so many. For suites of more than 10⁷ inputs.
        memory: what projections of training data may take on the device while calibrating, before they go to disk.

    Examples:
        >>> import torch, neuralcov as nc
        >>> x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        >>> cov = nc.Coverage.of_layers({"fc": 3}, [nc.LCC()])
        >>> cov.calibrate(activations={"fc": x}, predictions=x.argmax(1))
        >>> cov.update(activations={"fc": x}, predictions=x.argmax(1))
        >>> cov.values()
        {'LCC': 1.0}
    """

    hashed = True
    prepared = True
    marked = True
    folded = True
    of_one_suite = frozenset({"relative", "relative_error"})

    resolution: float = field(default=0.5, kw_only=True)
    directions: int = field(default=8, kw_only=True)
    over: str = field(default="median", kw_only=True)
    seed: int = field(default=0, kw_only=True)
    sketch: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checks.number(self, "resolution", above=0)
        checks.whole_number(self, "directions", at_least=1)
        checks.one_of(self, "over", "median", "mean", "trimmed")
        checks.whole_number(self, "seed", at_least=0)
        if self.sketch is not None:
            checks.whole_number(self, "sketch", at_least=16)
        super().__post_init__()

    @property
    @override
    def wants(self) -> frozenset[str]:
        return frozenset({"predictions"})

    @property
    @override
    def learns(self) -> frozenset[Statistic[Any]]:
        return frozenset({Projections(self.directions, self.resolution, self.seed, self.memory)})

    @property
    @override
    def kept(self) -> int | None:
        return self.sketch

    @property
    @override
    def linear(self) -> bool:
        return self.over == "mean"

    @property
    @override
    def exclusion_reason(self) -> str:
        return "every layer they have was constant in training, or had fewer than two valid training inputs"

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        # A kind takes a key, a count and the key of its box; each layer mean and deviation along every direction.
        table = workload.training_inputs * len(layout) * (16 + 4 + 16)
        return replace(super().cost(layout, workload), learnt=table + 16 * len(layout) * self.directions)

    @override
    def columns(self, layout: Layout) -> int:
        return len(layout)

    @override
    def kinds(self, batch: Activations) -> Int[Tensor, "batch layers 2"]:
        return self._found(batch)[0]

    @override
    def marks(self, batch: Activations) -> Int[Tensor, "batch layers"]:
        return self._found(batch)[1]

    @override
    def likeness(self, batch: Activations) -> Int[Tensor, "batch"]:
        # Kinds are hashes that begin with the layer's own, so that their sum is one too.
        return self.kinds(batch)[..., 0].sum(1)

    @override
    def groupings(self, batch: Activations) -> Mapping[str, Int[Tensor, "batch"]]:
        """Return ``kind``, that of the last layer which counts, and ``alike``, that of all layers together."""
        training: TrainingKinds = self.require_learnt()
        if not len(training.layers):
            return {}
        # The first word of an absent kind is that of no word.
        last = self.kinds(batch)[..., 0].index_select(1, training.layers[-1:])[:, 0]
        return {"kind": last, "alike": self.likeness(batch)}

    @override
    def weights_of(self, batch: Activations) -> Float[Tensor, "batch layers"]:
        marks = self.marks(batch)
        known = marks.clamp(min=1).double().pow(-0.5)
        return torch.where(marks == OFF_THE_MAP, 0.0, torch.where(marks == NEW_DECISION, 1.0, known))

    def rarity(self, batch: Activations) -> Float[Tensor, "batch"]:
        """Return how rare in training data each input's kinds are: the mean of c^−½ over the layers it has a kind in.

        A kind that no training input showed counts 1, off the map or not. NaN for an input without any kind.
        """
        kinds, marks = self._found(batch)
        there = (kinds != ABSENT).any(2) & self.finite(batch)[:, None]
        weights = torch.where(there, marks.clamp(min=1).double().pow(-0.5), 0.0)
        return weights.sum(1) / there.sum(1)

    @override
    def sums(self, state: DistinctState) -> Float[Tensor, "layers"]:
        training: TrainingKinds = self.require_learnt()
        if self.sketch is None:
            return training.weigh(numbers_of(state.seen, training, state.columns))
        inside, share = sample(state.seen, self.sketch, state.columns)
        return training.weigh(numbers_of(state.seen.each(lambda part: part[inside]), training, state.columns)) / share

    @override
    def reduce(self, sums: Float[Tensor, "*rows layers"]) -> Float[Tensor, "*rows"]:
        training: TrainingKinds = self.require_learnt()
        shares = sums.index_select(-1, training.layers) / training.total.index_select(0, training.layers)
        return over_layers(shares, self.over)

    @override
    def by_layer(self, state: DistinctState) -> Float[Tensor, "layers"]:
        return self._suite(state).values

    @override
    def details(self, state: DistinctState) -> Mapping[str, float]:
        """Return the figures beside the value, each brought together over the layers as the value is.

        ``relative`` and ``off_map`` with what is expected, ``new_decisions``, ``next`` and ``to_come``, with standard
        errors: ``error`` is that of the value.
        """
        return self._suite(state).details() if int(state.counts[VALID]) else {}

    @override
    def details_by_layer(self, state: DistinctState) -> Mapping[str, Float[Tensor, "layers"]]:
        return self._suite(state).by_layer() if int(state.counts[VALID]) else {}

    @override
    def rarefied(self, state: DistinctState, inputs: int) -> Estimate | None:
        if self.sketch is not None or inputs > int(state.counts[VALID]):
            return None
        return self._suite(state).rarefied(inputs)

    @override
    def forecast(self, state: DistinctState, inputs: int) -> float | None:
        """Return the value of more inputs that are as varied, beside training data, as these are."""
        return self._suite(state).forecast(inputs) if int(state.counts[VALID]) else None

    @override
    def notes(self, state: DistinctState) -> tuple[str, ...]:
        training: TrainingKinds = self.require_learnt()
        said = []
        if training.left_out:
            said.append(
                f"constant in training, or with fewer than two valid training inputs, and left out: "
                f"{', '.join(training.left_out)}"
            )
        if len(training.layers) < _MANY_LAYERS and self.over == "median":
            said.append(
                f"the median over {len(training.layers)} of {counted(len(training.names), 'layer')} is "
                f"moved by any odd one: "
                "read the values by layer, too"
            )
        return tuple(said)

    @override
    def for_state_file(self) -> TrainingKinds | None:
        training: TrainingKinds | None = self.learnt
        if training is None or training.table is None or training.table.size <= _LARGEST_TABLE:
            return training
        return replace(training, table=None)

    def _suite(self, state: DistinctState) -> SuiteKinds:
        return SuiteKinds(state, self.require_learnt(), self.over, self.sketch)

    def _found(self, batch: Activations) -> tuple[Tensor, Tensor]:
        """Return the kind of each input in each layer, and its mark; once for all criteria that learnt the same."""
        training: TrainingKinds = self.require_learnt()
        key = ("lcc", id(training), self.resolution, self.seed)
        # What was learnt is kept with the result, so that its id stays its own.
        return batch.shared(key, lambda: (training, self._find(batch, training)))[1]

    def _find(self, batch: Activations, training: TrainingKinds) -> tuple[Tensor, Tensor]:
        table, device = self._table(training), training.mean.device
        widths = tuple((name, outputs.shape[1]) for name, outputs in batch.layers.items())
        cuts = (training.mean, training.std, offsets(widths, self.directions, self.seed, device))
        begin = starts(training.names, self.seed, device)
        projected = project(batch, self.directions, self.seed)
        boxes, kinds = boxes_and_kinds(projected, self.resolution, cuts, begin, self._classes(batch, training))
        marks = table.marks(boxes.reshape(-1, 2), kinds.reshape(-1, 2)).view(kinds.shape[:2])
        there = present(batch)
        shown = kinds.transpose(0, 1)
        if len(training.layers) < len(training.names) or there is not None:
            counting = training.counting if there is None else training.counting & there
            shown = shown.masked_fill(~counting[..., None], ABSENT)
        return shown, marks.T

    def _table(self, training: TrainingKinds) -> TrainingTable:
        if training.table is None:
            raise CalibrationError(
                f"{self.name}: its table of training kinds is above {show_bytes(_LARGEST_TABLE)} and not in the state "
                "file: to measure further inputs, load it with calibration= the saved calibration"
            )
        return training.table

    def _classes(self, batch: Activations, training: TrainingKinds) -> Int[Tensor, "batch"] | None:
        """Return the classes that kinds are made with; refuse a batch unlike those of calibration."""
        if training.decisions == (batch.predictions is not None):
            return None if batch.predictions is None else batch.predictions.to(batch.device)
        there, here = ("with", "without") if training.decisions else ("without", "with")
        raise InputError(
            f"{self.name} was calibrated {there} predicted classes, and this batch comes {here} them: give "
            "predictions= with activations in both or in neither, or predict= for a model whose output has none to read"
        )

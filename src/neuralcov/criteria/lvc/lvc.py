"""LVC, layer volume coverage: the volume a suite spans in every layer, in units of the training data.

Inputs are whitened by the training covariance as they come (``whitened.py``). Ordinary ones are added to moments, one
set per fold; long ones are kept apart as rows (``room.py``), because a float64 covariance that held them would lose
what the others span. The value is the log-determinant of both together (``volume.py`` has the formula and why no
digits are lost), corrected by leaving each fold out in turn (``suites.py``). One more input changes a covariance by a
matrix of rank one, whose effect on a determinant is known in closed form: so one factorisation per layer and state
judges any number of inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations, Stack
from neuralcov.core.arguments import Glance
from neuralcov.core.cost import Cost, Workload, tensor_bytes
from neuralcov.core.counts import NOT_PLACEABLE, VALID, exclude_placeless, no_counts, not_finite
from neuralcov.core.criterion import MERGE_EXACT, ORDER_FREE, SPLIT_FREE, Criterion, widths_of, with_excluded
from neuralcov.core.errors import MismatchError
from neuralcov.core.hyper_parameters import resource
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.projected import projected, projected_layout
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.core.side_by_side import SideBySide
from neuralcov.criteria.lvc import schema1
from neuralcov.criteria.lvc.folds import among
from neuralcov.criteria.lvc.gathered import Sources
from neuralcov.criteria.lvc.learnt import LVCLearnt
from neuralcov.criteria.lvc.remarks import sentences
from neuralcov.criteria.lvc.room import FAR, SLOTS, TOO_FAR, Room, kinds_of, places
from neuralcov.criteria.lvc.suites import LVCState, Suites, suites_of
from neuralcov.criteria.lvc.whitened import Whitened
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.moments import LayerMoments, empty_moments, merge_all
from neuralcov.statistics.statistic import Statistic

# Inputs are dealt to folds by their content; beyond a few hundred, errors gain nothing.
_MOST_GROUPS = 1000


@dataclass(frozen=True, eq=False)
class LVC(Criterion[LVCState]):
    """Layer volume coverage, neuralcov's own.

        T = Σ_train + ridge · tr(Σ_train)/m · I
        LVC = mean over layers of (log det(T + Σ) − log det T) / (m · ln 2)

    in bits per neuron, with Σ the covariance of the suite (divided by n). 0 for at most one input. Layers
    that were constant in training are left out of the mean. Not monotone: redundant inputs lower it.
    Extreme inputs raise it, so the share of inputs farther out than training inputs stands beside the value: higher is
    not more valid. Right to 1e-7 bits with inputs up to 1e5·√m from training data, to 1e-6 up to 1e8·√m; farther ones
    are excluded, and of more than 64 beyond 1e5·√m in a layer none counts there.

    Args:
        relative: divide by the value of held-out training inputs (``calibrate(..., held_out=...)``), or of
            the training data where none were held out; 1.0 reads "as spread as training".
        groups: with 2 or more, inputs are dealt to as many folds by their content, the value is corrected
            by the jackknife for the shortfall of small suites, and its standard error stands beside it, at
            ``groups`` times the memory and cost.
        ridge: regularisation, fixed at calibration.
        sketch: look at wider layers along so many random directions, so that a layer's covariances take sketch² numbers
            whatever its width. Another number than LVC, and named so: the volume is that of the projections.
        refresh: how many inputs ``admit`` takes on one factorisation; 1, the default, judges each on the state it
            meets. A limit on resources, no part of the criterion's identity.

    Examples:
        >>> import torch, neuralcov as nc
        >>> x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
        >>> cov = nc.Coverage.of_layers({"fc": 3}, [nc.LVC()])
        >>> cov.calibrate(activations={"fc": x})
        >>> cov.update(activations={"fc": x})
        >>> round(cov.values()["LVC"], 3)
        1.0
    """

    definition: ClassVar[int] = 2
    waits = "apart"
    costly_value: ClassVar[bool] = True

    relative: bool = field(default=False, kw_only=True)
    groups: int = field(default=1, kw_only=True)
    ridge: float = field(default=1e-4, kw_only=True)
    sketch: int | None = field(default=None, kw_only=True)
    refresh: int = resource(1)

    def __post_init__(self) -> None:
        checks.flag(self, "relative")
        checks.whole_number(self, "groups", at_least=1)
        if self.groups > _MOST_GROUPS:
            raise checks.argument_error(self, "groups", f"at most {_MOST_GROUPS:,}, each of which has its covariances")
        checks.number(self, "ridge", at_least=1e-12)
        checks.whole_number(self, "refresh", at_least=1)
        if self.sketch is not None:
            checks.whole_number(self, "sketch", at_least=1)
        super().__post_init__()

    @property
    @override
    def learns(self) -> frozenset[Statistic[Any]]:
        # Folds where the reference is corrected.
        return Sources.of(self.groups, self.sketch).all(folds=self.relative)

    @property
    @override
    def promises(self) -> frozenset[str]:
        return frozenset({ORDER_FREE, SPLIT_FREE, MERGE_EXACT})

    @property
    @override
    def exclusion_reason(self) -> str:
        return f"they lie over {TOO_FAR:g} times as far out as training inputs, so that float64 would lose the rest"

    @property
    @override
    def fixed_size(self) -> bool:
        return self.groups == 1

    @override
    def calibrate(self, calibration: Calibration) -> Self:
        """Factorise the training covariances, and learn the limit of ordinary lengths and the volumes of reference."""
        sources = Sources.of(self.groups, self.sketch)
        return replace(self, learnt=LVCLearnt.of(self.name, self.ridge, calibration, sources, relative=self.relative))

    @override
    def upgrade(self, learnt: Any, state: Any, layout: Layout) -> tuple[Any, Any]:
        return schema1.upgraded(learnt, state, layout) if isinstance(state, schema1.OldState) else (learnt, state)

    @override
    def init(self, layout: Layout) -> LVCState:
        layout = self._along_directions(layout)
        folds = tuple(empty_moments(layout) for _ in range(self.groups))
        rooms = tuple(Room.empty(len(group), group.width, layout.device) for group in layout.groups)
        beyond = torch.zeros((), dtype=torch.int64, device=layout.device)
        return LVCState(no_counts(layout), widths_of(layout), folds, rooms, beyond)

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        layout = self._along_directions(layout)
        # C⁻¹ of every layer stays. Training covariances are factorised group by group, and whitened for all layers.
        squares = [8 * len(group) * group.width**2 for group in layout.groups]
        working = 2 * (sum(squares) + max(squares))
        return Cost(tensor_bytes(self.init(layout)), learnt=sum(squares), working=working)

    @override
    def observe(self, state: LVCState, batch: Activations, *, donate: bool = False) -> LVCState:
        whitened, counts = self._whitened(batch), state.counts + batch.input_counts
        if not whitened.short:
            counts = exclude_placeless(counts, (~whitened.measurable & batch.finite).sum())
        return self._take(state, whitened, self._fold_of(batch), counts, donate=donate)

    def _take(
        self, state: LVCState, batch: Whitened, fold_of: Tensor | None, counts: Tensor, *, donate: bool
    ) -> LVCState:
        learnt: LVCLearnt = self.require_learnt()
        beyond, ordinary, rooms = batch.lengths() > learnt.limit, batch.valid, state.rooms
        if not batch.short:
            beyond &= batch.measurable
            valid = batch.valid_mask & batch.measurable[:, None]
            met = torch.cat([room.met for room in rooms], dim=1)
            where = places(kinds_of(batch.squares, valid), valid, met)
            ordinary = where.ordinary
            folds = None if fold_of is None else fold_of[None]
            parts = zip(batch.columns, rooms, batch.rows, strict=True)
            rooms = tuple(where.columns(columns).filled(room, rows, folds) for columns, room, rows in parts)
        stacks = [
            _stack(rows, None if ordinary is None else ordinary[:, columns])
            for columns, rows in zip(batch.columns, batch.rows, strict=True)
        ]
        moments = tuple(
            tuple(
                m.absorb(s if fold_of is None else among(s, fold_of == index), donate=donate)
                for m, s in zip(part, stacks, strict=True)
            )
            for index, part in enumerate(state.folds)
        )
        return LVCState(counts, state.widths, moments, rooms, state.beyond + beyond.sum())

    @override
    def merge(self, a: LVCState, b: LVCState) -> LVCState:
        return self._merged(a, b, [list(merge_all(x, y)) for x, y in zip(a.folds, b.folds, strict=True)])

    @override
    def merge_in(self, a: LVCState, b: LVCState) -> LVCState:
        pairs = [zip(x, y, strict=True) for x, y in zip(a.folds, b.folds, strict=True)]
        return self._merged(a, b, [[ours.merge_in(theirs) for ours, theirs in some] for some in pairs])

    def _merged(self, a: LVCState, b: LVCState, folds: list[list[LayerMoments]]) -> LVCState:
        """Return the state of two suites, given the moments of both together by fold and group."""
        rooms = []
        for group, (ours, theirs) in enumerate(zip(a.rooms, b.rooms, strict=True)):
            where = places(*theirs.offered(), ours.met)
            rooms.append(replace(where.filled(ours, theirs.rows, theirs.folds), met=ours.met + theirs.met))
            if where.ordinary.device.type == "cpu" and not bool(where.ordinary.any()):
                continue
            # Stretched rows for which there is no slot any more.
            for index, part in enumerate(folds):
                mine = where.ordinary & theirs.folds.eq(index).T
                part[group] = part[group].absorb(_stack(theirs.rows, mine))
        whole = tuple(tuple(part) for part in folds)
        return LVCState(a.counts + b.counts, a.widths, whole, tuple(rooms), a.beyond + b.beyond)

    @override
    def joined(self, other: Self, a: LVCState, b: LVCState, *, alike: bool) -> tuple[Self, LVCState]:
        """Join the layers of both; how many inputs lie beyond the limit would follow from all layers together."""
        if self.groups > 1 and not alike:
            raise MismatchError(
                f"{self.name}: which fold an input is dealt to follows from its key, and the parts have other keys: "
                "measure it without groups="
            )
        layers = SideBySide(a.widths, b.widths)
        learnt: LVCLearnt = self.require_learnt()
        folds = tuple(layers.groups(x, y) for x, y in zip(a.folds, b.folds, strict=True))
        rooms = layers.groups(a.rooms, b.rooms, Room.joined)
        whole = LVCState(a.counts, layers.widths, folds, rooms, torch.zeros_like(a.beyond))
        return replace(self, learnt=learnt.joined(other.require_learnt(), layers)), whole

    @override
    def value(self, state: LVCState) -> Float[Tensor, ""]:
        learnt: LVCLearnt = self.require_learnt()
        value = learnt.mean(suites_of(state).volumes)
        return value / learnt.reference_volume if self.relative else value

    @override
    def by_layer(self, state: LVCState) -> Float[Tensor, "layers"]:
        """Return each layer's volume, or its ratio to that layer's own reference; NaN for one constant in training."""
        learnt: LVCLearnt = self.require_learnt()
        volumes = suites_of(state).volumes
        if self.relative:
            volumes = tuple(v / r for v, r in zip(volumes, learnt.reference_volumes, strict=True))
        shown = [torch.where(t.varies, v, torch.nan) for t, v in zip(learnt.training, volumes, strict=True)]
        return in_execution_order(state.widths, shown)

    @override
    def gain(self, state: LVCState, batch: Activations) -> Float[Tensor, "batch"]:
        """Return the change of the value by each input alone, from one factorisation per layer and state."""
        return self._gain(state, self._whitened(batch), self._fold_of(batch))

    def _gain(self, state: LVCState, batch: Whitened, fold_of: Tensor | None) -> Float[Tensor, "batch"]:
        learnt: LVCLearnt = self.require_learnt()
        suites, count = suites_of(state), self.groups
        full = [room.met[0] >= SLOTS for room in state.rooms]
        glance = Glance(torch.cat(full).any())
        changes = [suite.gain(rows) for suite, rows in zip(suites.whole, batch.rows, strict=True)]
        if fold_of is not None:
            changes = [count * change for change in changes]
            for fold, left in enumerate(suites.left_out()):
                apart = (fold_of != fold)[:, None].double() * ((count - 1) / count)
                for change, suite, rows in zip(changes, left, batch.rows, strict=True):
                    change -= apart * suite.gain(rows)
        if not batch.short and not glance.surely_down():
            # One far input too many, and none of them counts in this layer any more.
            emptied = zip(Suites(state.folds, state.rooms, far=False).volumes, suites.volumes, strict=True)
            for group, (fewer, now) in enumerate(emptied):
                far = batch.squares[:, batch.columns[group]] > FAR**2
                changes[group] = torch.where(far & full[group], fewer - now, changes[group])
        change = torch.cat(changes, dim=1)
        change = change if batch.valid is None else change.masked_fill(~batch.valid, 0)
        total = change.sum(1) / learnt.varying
        total = total if batch.short else total.masked_fill(~batch.measurable, 0)
        return total / learnt.reference_volume if self.relative else total

    @override
    def admit(
        self, state: LVCState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], LVCState]:
        """Admit, in order, inputs that gain; one factorisation serves ``refresh`` admissions."""
        admitted = torch.zeros(batch.size, dtype=torch.bool, device=batch.device)
        whitened, fold_of = self._whitened(batch), self._fold_of(batch)
        exclusions = self.exclusions(batch)
        start = 0
        while start < batch.size:
            rest, folds = whitened.take(slice(start, None)), None if fold_of is None else fold_of[start:]
            gains = (self._gain(state, rest, folds) > min_gain) & (exclusions[start:] == VALID)
            chosen = gains.nonzero()[:, 0][: self.refresh]
            if len(chosen):
                counts = state.counts.clone()
                counts[VALID] += len(chosen)
                own = None if folds is None else folds[chosen]
                state = self._take(state, rest.take(chosen), own, counts, donate=False)
                admitted[start + chosen] = True
            start = start + int(chosen[-1]) + 1 if len(chosen) == self.refresh else batch.size
        return admitted, with_excluded(state, exclusions)

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        return torch.where(self._whitened(batch).measurable, not_finite(batch), NOT_PLACEABLE)

    @override
    def details(self, state: LVCState) -> Mapping[str, float]:
        """Return the share of extreme inputs, what training inputs would show, and with folds the standard error."""
        learnt: LVCLearnt = self.require_learnt()
        figures = {}
        if not learnt.limit.isnan():
            figures["beyond"] = float(state.beyond) / max(1, int(state.counts[VALID]))
        if not math.isnan(learnt.expected):
            figures["expected beyond"] = learnt.expected
        if self.groups > 1:
            left_out = torch.stack([learnt.mean(volumes) for volumes in suites_of(state).left_out_volumes])
            spread = (left_out - left_out.mean()).square().sum() * (self.groups - 1) / self.groups
            error = spread.sqrt() / (learnt.reference_volume if self.relative else 1.0)
            figures["standard error"] = float(error)
        return figures

    @override
    def learnt_template(self, layout: Layout) -> tuple[LVCLearnt, LVCLearnt]:
        form = LVCLearnt.template(self._along_directions(layout))
        return form, form

    @override
    def notes(self, state: LVCState) -> tuple[str, ...]:
        """Name layers left out, far inputs that do not count, and suites or training data too small for the layers."""
        learnt: LVCLearnt = self.require_learnt()
        return sentences(learnt, state)

    @override
    def undefined(self, state: LVCState) -> str:
        learnt: LVCLearnt = self.require_learnt()
        failed = in_execution_order(state.widths, suites_of(state).volumes).isnan().tolist()
        named = ", ".join(name for name, fails in zip(learnt.names, failed, strict=True) if fails)
        return f"the covariance of the inputs cannot be factorised in {named or 'any layer'}"

    def _along_directions(self, layout: Layout) -> Layout:
        return layout if self.sketch is None else projected_layout(layout, self.sketch)

    def _whitened(self, batch: Activations) -> Whitened:
        """Whiten a batch once: what is judged is often taken in as well."""
        learnt: LVCLearnt = self.require_learnt()
        batch = batch if self.sketch is None else projected(batch, self.sketch)
        # What was learnt is kept with the result, so that its id stays its own.
        kept = batch.shared(("whitened", id(learnt)), lambda: (learnt, Whitened.of(learnt.training, batch.stacks)))
        return kept[1]

    def _fold_of(self, batch: Activations) -> Int[Tensor, "batch"] | None:
        return batch.folds(self.groups) if self.groups > 1 else None


def _stack(rows: Float[Tensor, "layers batch width"], valid: Bool[Tensor, "batch layers"] | None) -> Stack:
    """Return whitened rows as moments take them in."""
    values = rows.transpose(0, 1)
    return Stack(values if valid is None else values.masked_fill(~valid[:, :, None], 0), valid)

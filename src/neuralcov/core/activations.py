"""One batch of neuron outputs, and the stacked, sanitised view of it that criteria work on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from neuralcov.core.digests import content_keys, folds
from neuralcov.core.input_names import Column, join, join_columns, pick, pick_columns
from neuralcov.core.layout import Layout, group_by_width
from neuralcov.core.sanitise import finite_inputs, sanitised
from neuralcov.core.shapes import Bool, Float, Int

T = TypeVar("T")


def statistics_device(device: torch.device) -> torch.device:
    """Return where statistics of outputs on ``device`` live: there, or on the CPU if it has no float64."""
    return torch.device("cpu") if device.type == "mps" else device


@dataclass(frozen=True, eq=False)
class Stack:
    """The outputs of all layers of one width.

    ``values`` are 0 where ``valid`` is false: for an input with a NaN or infinite output anywhere, and for a step past
    an input's end. ``valid`` is ``None`` when every row takes part. ``least`` and ``most`` are each row's extremes,
    which had to be found to see whether it is finite.

    ``names`` are the layers, ``positions`` their places in execution order, ``group`` the index of this stack among
    those of the batch, which is that of its width among the layout's groups.
    """

    values: Float[Tensor, "batch layers width"]
    valid: Bool[Tensor, "batch layers"] | None
    least: Float[Tensor, "batch layers"] | None = None
    most: Float[Tensor, "batch layers"] | None = None
    names: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    group: int = 0

    def take(self, rows: slice | Tensor) -> Stack:
        """Return the same layers for some of the inputs."""

        def some(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[rows]

        return Stack(
            self.values[rows],
            some(self.valid),
            some(self.least),
            some(self.most),
            self.names,
            self.positions,
            self.group,
        )

    def pick(self, per_group: Sequence[T]) -> T:
        """Return the part that belongs to these layers of what was learnt or kept for every group."""
        return per_group[self.group]

    def valid_mask(self) -> Bool[Tensor, "batch layers"]:
        """Return which rows take part, as a mask that is always there."""
        if self.valid is not None:
            return self.valid
        return torch.ones(self.values.shape[:2], dtype=torch.bool, device=self.values.device)

    def extremes(self) -> tuple[Float[Tensor, "batch layers"], Float[Tensor, "batch layers"]]:
        """Return the smallest and the largest output of each row; anything for rows that are not valid."""
        if self.least is not None and self.most is not None:
            return self.least, self.most
        least, most = torch.aminmax(self.values, dim=2)
        return least, most

    def counts(self) -> Float[Tensor, "layers"]:
        """Count the valid inputs of each layer."""
        if self.valid is None:
            shape, device = self.values.shape, self.values.device
            return torch.full((shape[1],), shape[0], dtype=torch.float64, device=device)
        return self.valid.sum(0, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Activations:
    """One batch: what every chosen layer gave for every input.

    Args:
        layers: name → ``(batch, neurons)``, in execution order, on the layer's device.
        labels: ``(batch,)`` true classes, where known.
        predictions: ``(batch,)`` classes the model chose, where a criterion needs them.
        relevance: name → ``(batch, neurons)`` relevance for the predicted class, for NPC.
        present: name → ``(batch,)``, only for layers that some inputs lack (padded time steps).
        keys: ``(batch, 2)`` content keys of the inputs, where the inputs are known; see ``content_keys``.
        valid: ``(batch,)``, which inputs may take part; others count as not finite. ``None`` if all may.
        ids: one name per input, text or number, where names are known. They only name, and tell no inputs apart.
        metadata: column → one value per input, such as ``{"weather": ("rain", "sun")}``.
        tokens: ``(batch, 2)``, where every input is one token of a longer one: the number of that one in its batch, and
            the token's place in it.
        sources: ``(batch, 2)`` content keys of the longer inputs that tokens are of; folds are dealt by these.
        moments: ``(batch, channels, 2)`` mean of each input's numbers and of their squares, where inputs have a scale:
            by these it is seen whether two suites are prepared alike.

    Examples:
        >>> batch = Activations({"fc1": torch.ones(2, 3), "fc2": torch.zeros(2, 3)})
        >>> batch.size, [tuple(stack.values.shape) for stack in batch.stacks]
        (2, [(2, 2, 3)])
    """

    layers: Mapping[str, Float[Tensor, "_ _"]]
    labels: Int[Tensor, "_"] | None = None
    predictions: Int[Tensor, "_"] | None = None
    relevance: Mapping[str, Float[Tensor, "_ _"]] | None = None
    present: Mapping[str, Bool[Tensor, "_"]] = field(default_factory=dict)
    keys: Int[Tensor, "_ 2"] | None = None
    valid: Bool[Tensor, "_"] | None = None
    ids: Column | None = None
    metadata: Mapping[str, Column] = field(default_factory=dict)
    tokens: Int[Tensor, "_ 2"] | None = None
    sources: Int[Tensor, "_ 2"] | None = None
    moments: Float[Tensor, "_ channels 2"] | None = None
    _shared: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def size(self) -> int:
        """Return the number of inputs."""
        return next(iter(self.layers.values())).shape[0]

    @property
    def device(self) -> torch.device:
        """Return where statistics of this batch live: with the first layer, since a model may be spread out."""
        return statistics_device(next(iter(self.layers.values())).device)

    @property
    def layout(self) -> Layout:
        """Return the layers of this batch."""
        return Layout({name: outputs.shape[1] for name, outputs in self.layers.items()}, self.device)

    def shared(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what ``compute`` gives, computed once for this batch, so that criteria share work."""
        if key not in self._shared:
            self._shared[key] = compute()
        return cast(T, self._shared[key])

    def shared_during(self, work: Callable[[], object]) -> dict[Hashable, Any]:
        """Do some work with this batch; return what it computed to be shared, for ``take_over``."""
        before = set(self._shared)
        work()
        return {key: found for key, found in self._shared.items() if key not in before}

    def take_over(self, shared: Mapping[Hashable, Any]) -> None:
        """Share what another object computed for the same batch."""
        self._shared.update(shared)

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Return layers of one width stacked, in the order of ``layout.groups``."""
        return self._stacked[0]

    @property
    def finite(self) -> Bool[Tensor, "batch"]:
        """Return which inputs may take part and have finite outputs only; others take part in nothing."""
        return self._stacked[1]

    @property
    def input_counts(self) -> Int[Tensor, "3"]:
        """Return inputs that are finite, inputs that are not, and 0, as ``neuralcov.core.counts`` keeps them."""

        def count() -> Tensor:
            if self.device.type == "cpu":
                finite = int(self.finite.sum())
                return torch.tensor([finite, self.size - finite, 0])
            good = self.finite.sum()
            return torch.stack([good, self.size - good, torch.zeros_like(good)])

        return self.shared("input counts", count)

    @property
    def content_keys(self) -> Int[Tensor, "batch 2"]:
        """Return 128-bit keys of the inputs by their bytes, or by their activations where these are all there is.

        Activations count as float32 numbers, so that the same numbers in float64 have the same key.
        """
        if self.keys is not None:
            return self.keys
        layers = self.layers.values()
        return self.shared("content keys", lambda: activation_keys([outputs.to(self.device) for outputs in layers]))

    @property
    def dealing_keys(self) -> Int[Tensor, "batch 2"]:
        """Return the keys by which inputs are dealt to folds, or held out: the same for all tokens of one input."""
        return self.content_keys if self.sources is None else self.sources

    def folds(self, count: int) -> Int[Tensor, "batch"]:
        """Deal the inputs to ``count`` folds by their content keys, whatever batch they come in."""
        return self.shared(("folds", count), lambda: folds(self.dealing_keys.to(self.device), count))

    @classmethod
    def cat(cls, batches: Sequence[Activations]) -> Activations:
        """Join batches of the same layers, in order; what some of them lack is left out."""
        first, *rest = batches
        if not rest:
            return first

        def rows(tensors: Sequence[Tensor | None]) -> Tensor | None:
            there = [tensor for tensor in tensors if tensor is not None]
            return torch.cat(there) if len(there) == len(tensors) else None

        def rows_of(mappings: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
            return {name: torch.cat([mapping[name] for mapping in mappings]) for name in mappings[0]}

        def everywhere(batch: Activations, name: str) -> Tensor:
            return torch.ones(batch.size, dtype=torch.bool, device=batch.layers[name].device)

        relevance = [batch.relevance for batch in batches if batch.relevance is not None]
        partial = [name for name in first.layers if any(name in batch.present for batch in batches)]
        return cls(
            layers=rows_of([batch.layers for batch in batches]),
            labels=rows([batch.labels for batch in batches]),
            predictions=rows([batch.predictions for batch in batches]),
            relevance=rows_of(relevance) if len(relevance) == len(batches) else None,
            present=rows_of([{name: b.present.get(name, everywhere(b, name)) for name in partial} for b in batches]),
            keys=rows([batch.keys for batch in batches]),
            valid=None if all(b.valid is None for b in batches) else torch.cat([_valid_rows(b) for b in batches]),
            ids=None if any(b.ids is None for b in batches) else join(b.ids or () for b in batches),
            metadata=join_columns([(batch.size, batch.metadata) for batch in batches]),
            tokens=rows([batch.tokens for batch in batches]),
            sources=rows([batch.sources for batch in batches]),
            moments=rows([batch.moments for batch in batches]) if _same_channels(batches) else None,
        )

    def take(self, rows: slice | Tensor) -> Activations:
        """Return the same activations for some of the inputs, by slice, mask or index."""

        def rows_of(tensor: Tensor) -> Tensor:
            return tensor[rows if isinstance(rows, slice) else rows.to(tensor.device)]

        def pick_all(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: rows_of(tensor) for name, tensor in tensors.items()}

        part = Activations(
            layers=pick_all(self.layers),
            labels=None if self.labels is None else rows_of(self.labels),
            predictions=None if self.predictions is None else rows_of(self.predictions),
            relevance=None if self.relevance is None else pick_all(self.relevance),
            present=pick_all(self.present),
            keys=None if self.keys is None else rows_of(self.keys),
            valid=None if self.valid is None else rows_of(self.valid),
            ids=None if self.ids is None else pick(self.ids, rows),
            metadata=pick_columns(self.metadata, rows),
            tokens=None if self.tokens is None else rows_of(self.tokens),
            sources=None if self.sources is None else rows_of(self.sources),
            moments=None if self.moments is None else rows_of(self.moments),
        )
        if "stacked" in self._shared and isinstance(rows, slice):
            part._shared["stacked"] = (tuple(s.take(rows) for s in self.stacks), self.finite[rows])
        return part

    def lend_stacks(self, parts: Sequence[Activations]) -> None:
        """Let the batches that this one was joined from have their rows of its stacks, which need not be made again."""
        begin = 0
        for part in parts:
            rows = slice(begin, begin + part.size)
            part._shared["stacked"] = (tuple(stack.take(rows) for stack in self.stacks), self.finite[rows])
            begin += part.size

    def only(self, names: Collection[str]) -> Activations:
        """Return the same inputs seen through some of the layers."""

        def restrict() -> Activations:
            layers = {name: outputs for name, outputs in self.layers.items() if name in names}
            present = {name: mask for name, mask in self.present.items() if name in names}
            return replace(self, layers=layers, present=present)

        return self.shared(("only", frozenset(names)), restrict)

    @property
    def _stacked(self) -> tuple[tuple[Stack, ...], Tensor]:
        return self.shared("stacked", self._stack)

    def _stack(self) -> tuple[tuple[Stack, ...], Tensor]:
        home = self.device
        raw: list[tuple[Tensor, Tensor | None, tuple[Tensor, Tensor]]] = []
        groups = group_by_width({name: out.shape[1] for name, out in self.layers.items()})
        for group in groups:
            values = torch.stack([self.layers[n].to(home, non_blocking=True) for n in group.names], dim=1)
            raw.append((values, self._present_in(group.names, home), torch.aminmax(values, dim=2)))
        finite = finite_inputs(raw)
        if self.valid is not None:
            finite = finite & self.valid.to(home)
        # On a CPU looking at a value costs nothing, so the usual case goes on without masks. On a GPU
        # it would stall the queue: there every batch carries its mask.
        everyone = home.type == "cpu" and bool(finite.all())
        if everyone:
            self._shared["input counts"] = torch.tensor([self.size, 0, 0])
        stacks = tuple(
            Stack(*sanitised(*parts, None if everyone else finite), group.names, group.positions, index)
            for index, (parts, group) in enumerate(zip(raw, groups, strict=True))
        )
        return stacks, finite

    def _present_in(self, names: tuple[str, ...], home: torch.device) -> Tensor | None:
        if not any(name in self.present for name in names):
            return None
        everywhere = torch.ones(self.size, dtype=torch.bool, device=home)
        masks = [self.present[n].to(home) if n in self.present else everywhere for n in names]
        return torch.stack(masks, dim=1)


def _same_channels(batches: Sequence[Activations]) -> bool:
    return len({None if batch.moments is None else batch.moments.shape[1] for batch in batches}) == 1


def _valid_rows(batch: Activations) -> Tensor:
    """Return which inputs of a batch may take part, as a mask that is always there."""
    return torch.ones(batch.size, dtype=torch.bool, device=batch.device) if batch.valid is None else batch.valid


def activation_keys(layers: Sequence[Float[Tensor, "batch _"]]) -> Int[Tensor, "batch 2"]:
    """Return a 128-bit key of each input by what its layers gave."""
    # Adding zero makes -0.0 into +0.0, the same number.
    return content_keys([outputs.to(torch.float32) + 0.0 for outputs in layers])

"""SS, sign-sign coverage: which single sign changes in a layer were seen to change signs in the next."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations
from neuralcov.core.cost import Cost, Workload, tensor_bytes
from neuralcov.core.counts import no_counts, not_finite
from neuralcov.core.criterion import ALL_PROMISES, SUBMODULAR, Criterion, State, widths_of, with_excluded
from neuralcov.core.layout import Layout
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.ss.admission import OrderedAdmission
from neuralcov.criteria.ss.signs import (
    SignBatch,
    SignInsertion,
    SignPairs,
    as_batch,
    count_newly_shown,
    newly_shown,
)
from neuralcov.kernels.hashing import pack, set_keys, words_for

# Inputs that queue up at once: each needs a place for every neuron, so that very many would fill the memory.
QUEUE = 1024


@dataclass(frozen=True, eq=False)
class SSState(State, name="ss"):
    """One entry for every two consecutive layers."""

    pairs: tuple[SignPairs, ...]


@dataclass(frozen=True, eq=False)
class SS(Criterion[SSState]):
    """Sign-sign coverage (Sun et al., DeepConcolic, 2018).

    For consecutive layers k, k+1 in execution order, with signs ``a > 0``: the pair (i, j) is shown by two
    inputs when in layer k only neuron i changes sign and neuron j of layer k+1 does.

        SS = pairs (k, i, j) shown / Σ m_k · m_{k+1}

    A network of one layer has the value 0. Exact and linear in inputs × neurons, though the definition
    compares all pairs of inputs; see ``neuralcov.criteria.ss.signs``.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc1": 2, "fc2": 1}, [nc.SS()])
        >>> fc1 = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> cov.update(activations={"fc1": fc1, "fc2": torch.tensor([[1.0], [-1.0], [-1.0]])})
        >>> cov.values()
        {'SS': 0.5}
    """

    @property
    @override
    def promises(self) -> frozenset[str]:
        # A pair is shown by two inputs: one of them may gain only once the other is there.
        return ALL_PROMISES - {SUBMODULAR}

    @override
    def init(self, layout: Layout) -> SSState:
        widths = widths_of(layout)
        pairs = tuple(SignPairs.empty(a, b, layout.device) for a, b in pairwise(widths))
        return SSState(no_counts(layout), widths, pairs)

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        # A group of its own for every input: a key, and twice the signs of the next layer.
        groups = sum(16 + 16 * words_for(width) for width in list(layout.widths.values())[1:])
        return Cost(tensor_bytes(self.init(layout)) + groups * workload.inputs, grows=True)

    @override
    def observe(self, state: SSState, batch: Activations, *, donate: bool = False) -> SSState:
        pairs = _absorbed(state.pairs, _offers(batch)) if batch.size else state.pairs
        return SSState(state.counts + batch.input_counts, state.widths, pairs)

    @override
    def merge(self, a: SSState, b: SSState) -> SSState:
        pairs, shown = a.pairs, [x.shown | y.shown for x, y in zip(a.pairs, b.pairs, strict=True)]
        for flipping in (True, False):
            pairs = _absorbed(pairs, [as_batch(k, theirs, flipping=flipping) for k, theirs in enumerate(b.pairs)])
        joined = tuple(
            SignPairs(p.keys, p.every, p.some, p.shown | s, p.next_width) for p, s in zip(pairs, shown, strict=True)
        )
        return SSState(a.counts + b.counts, a.widths, joined)

    @override
    def value(self, state: SSState) -> Float[Tensor, ""]:
        total = sum(a * b for a, b in pairwise(state.widths))
        if not total:
            return torch.zeros((), dtype=torch.float64, device=state.counts.device)
        return torch.stack([pairs.count_shown() for pairs in state.pairs]).sum().double() / total

    @override
    def by_layer(self, state: SSState) -> Float[Tensor, "layers"]:
        shares = [pairs.count_shown().double() / (pairs.width * pairs.next_width) for pairs in state.pairs]
        return torch.stack([*shares, torch.full((), torch.nan, dtype=torch.float64, device=state.counts.device)])

    @override
    def gain(self, state: SSState, batch: Activations) -> Float[Tensor, "batch"]:
        gains = torch.zeros(batch.size, dtype=torch.int64, device=batch.device)
        if not batch.size or not state.pairs:
            return gains.double()
        offers = _offers(batch)
        plans = [newly_shown(pairs, offer) for pairs, offer in zip(state.pairs, offers, strict=True)]
        sizes = torch.stack([plan[2] for plan in plans]).tolist()
        for pairs, offer, (at, found, _), matches in zip(state.pairs, offers, plans, sizes, strict=True):
            gains += count_newly_shown(pairs, offer, at, found, matches)
        return gains.double() / sum(a * b for a, b in pairwise(state.widths))

    @override
    def admit(
        self, state: SSState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], SSState]:
        """Admit, in order, inputs that show a pair; see ``admission.py``. Waits for the device every round."""
        if min_gain < 0:
            return super().admit(state, batch, min_gain=min_gain)
        admitted = torch.zeros(batch.size, dtype=torch.bool, device=batch.device)
        for start in range(0, batch.size if state.pairs else 0, QUEUE):
            part = batch.take(slice(start, start + QUEUE))
            chosen = _gaining(state, part, min_gain)
            admitted[start : start + QUEUE] = chosen
            state = self.observe(state, part.take(chosen.nonzero()[:, 0]))
        return admitted, with_excluded(state, self.exclusions(batch))

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        return not_finite(batch)


def _gaining(state: SSState, batch: Activations, min_gain: float) -> Bool[Tensor, "batch"]:
    """Return which inputs gain, each on the state as those of them before it leave it."""
    admitted = torch.zeros(batch.size, dtype=torch.bool, device=batch.device)
    queues = OrderedAdmission.of_all(state.pairs, _offers(batch))
    total = sum(a * b for a, b in pairwise(state.widths))
    # Each round settles at least the first input that is not, so that there are never more.
    for _ in range(batch.size if queues else 0):
        shown = torch.stack([queue.newly_shown(admitted) for queue in queues]).sum(0)
        before, admitted = admitted, shown.double() / total > min_gain
        if torch.equal(before, admitted):
            break
    return admitted


def _absorbed(pairs: tuple[SignPairs, ...], offers: list[SignBatch]) -> tuple[SignPairs, ...]:
    plans = SignInsertion.of_all(pairs, offers)
    if not plans:
        return ()
    sizes = torch.stack([plan.sizes for plan in plans]).tolist()
    return tuple(plan.finish(*size) for plan, size in zip(plans, sizes, strict=True))


def _offers(batch: Activations) -> list[SignBatch]:
    """Return the signs of every two consecutive layers."""
    signs: dict[int, Tensor] = {}
    packed: dict[int, Tensor] = {}
    keys: dict[int, Tensor] = {}
    valid: dict[int, Tensor] = {}
    for stack in batch.stacks:
        positive = stack.values > 0
        # Each layer's part in one piece of memory, by one operation for the whole group.
        group_keys = set_keys(positive, stack.positions).transpose(0, 1).contiguous()
        group_signs = positive.transpose(0, 1).contiguous()
        group_bits = pack(group_signs)
        for index, layer in enumerate(stack.positions):
            signs[layer], packed[layer], keys[layer] = group_signs[index], group_bits[index], group_keys[index]
            valid[layer] = batch.finite if stack.valid is None else stack.valid[:, index]
    return [
        SignBatch(k, keys[k], packed[k + 1], packed[k + 1], signs[k], valid[k] & valid[k + 1])
        for k in range(len(batch.layers) - 1)
    ]

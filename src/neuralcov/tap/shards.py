"""Layers spread over several processes: put the ranks' parts of a layer's neurons together, or refuse.

Tensor-parallel styles keep a layer's weights as sharded DTensors and hand plain tensors on, in which a part of a layer
looks like a whole one. Hooks on such modules therefore run before all others, where PyTorch's styles have not yet
turned the output into a plain tensor: its placements say how to complete it. What a style computes inside ``forward``,
as those of transformers do, is a plain tensor even there; then the module's declared width tells whether neurons are
missing, and the weight's placements where they are. Parameters that FSDP shards are whole while a module runs.

Outputs are reduced to neurons first and gathered then: (batch, neurons) numbers instead of feature maps. Whatever is
taken for whole must be the same on all ranks, which the first pass checks.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

from neuralcov.core.errors import LayerError
from neuralcov.tap.axes import OutputAxes, declared_width, feature_axis, output_axis

# Ranks compute the same numbers in nearly the same order; different parts of an output differ by far more.
_TOLERANCE = 1e-3
# What ranks hold of a partial result is put together by these, of which averages are taken before or after alike.
_LINEAR = ("sum", "avg")


def require_whole(layer: str, neurons: Tensor, width: int | None) -> Tensor:
    """Refuse fewer neurons than a layer's module declares."""
    if width is not None and neurons.shape[-1] < width:
        raise LayerError(
            f"layer {layer!r} gave {neurons.shape[-1]} features where its module declares {width}: a part of a layer "
            f"is not measured as if it were the whole; leave it out, for example with layers='!{layer}', or let the "
            "module declare the features that it gives"
        )
    return neurons


def whole_tensor(value: Any) -> Any:
    """Put a DTensor together; give back anything else as it is."""
    return _finished(value.full_tensor()) if _is_dtensor(value) else value


class Shards:
    """The chosen modules with DTensors for parameters, and what passes show of how their outputs are spread."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self.modules = modules
        self._groups: dict[str, Any] = {}
        self._parts: dict[str, int] = {}
        self._checked = False

    @classmethod
    def among(cls, chosen: Mapping[str, nn.Module]) -> Shards | None:
        """Find such modules; ``None`` if there are none."""
        # Without processes that know each other there is no mesh, and without a mesh no DTensor.
        if not (distributed.is_available() and distributed.is_initialized()):
            return None
        found = {name: module for name, module in chosen.items() if any(map(_is_dtensor, module.parameters()))}
        return cls(found) if found else None

    def neurons(
        self,
        layer: str,
        module: nn.Module,
        kind: OutputAxes,
        output: Tensor,
        size: int,
        reduce: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Reduce an output of which this rank may hold a part to the neurons of the whole layer.

        Args:
            layer: its name, for messages.
            module: the module that gave the output.
            kind: how the module lays its output out.
            output: a DTensor or what this rank has of the output.
            size: B, the number of inputs that this rank was given.
            reduce: from an output to neurons, linear in the output, so that partial sums may be added up behind it.
        """
        weight: Any = getattr(module, "weight", None)
        width = declared_width(module)
        if _is_dtensor(output):
            return require_whole(layer, self._by_placements(layer, kind, output, size, reduce), width)
        neurons = reduce(output)
        if _is_dtensor(weight):
            mesh, placements = weight.device_mesh, [_along(1, p, output_axis(module)) for p in weight.placements]
            self._note_groups(mesh, [not placement.is_replicate() for placement in weight.placements])
            if width is not None and neurons.shape[1] < width:
                self._parts[layer] = neurons.shape[1]
                neurons = _gathered(neurons, mesh, placements, width)
        return require_whole(layer, neurons, width)

    def refuse_relevance(self, layer: str, module: nn.Module, output: Tensor) -> None:
        """Refuse to follow relevance through a layer that is spread over ranks."""
        if _is_dtensor(output) or _is_dtensor(getattr(module, "weight", None)):
            raise LayerError(
                f"layer {layer!r} is spread over several ranks, and relevance is not followed from one to another: "
                f"leave it out, for example with layers='!{layer}', or leave NPC out"
            )

    def check(self, layers: Mapping[str, Tensor], scores: Tensor | None, *, classes: bool) -> None:
        """Refuse, on the first pass, layers that differ between ranks, and scores that are a part of the last layer.

        Args:
            layers: the neurons, gathered.
            scores: what classes are read off, waited for here: nobody else might, and collectives must end.
            classes: whether classes will be read off them.
        """
        last = list(layers)[-1]
        scores = None if scores is None else _finished(scores)
        if classes and scores is not None and scores.dim() > 1 and scores.shape[-1] == self._parts.get(last):
            raise LayerError(
                f"the model's output holds {scores.shape[-1]} of the {layers[last].shape[1]} features of layer "
                f"{last!r}, and no class can be read off a part: let the layer's style give the whole output, for "
                "example ColwiseParallel(output_layouts=Replicate()), or pass predict="
            )
        if not self._checked:
            for group in self._groups.values():
                _require_agreement(layers, group)
            self._checked = True

    def _by_placements(
        self, layer: str, kind: OutputAxes, output: Any, size: int, reduce: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Reduce shards of features and partial sums where they are; complete first what is spread otherwise.

        Ranks that were given inputs of their own keep them: their rows are the batch, of which the DTensor knows more.
        """
        dims, mesh = output.dim(), output.device_mesh
        axis = feature_axis(output.shape, kind)
        own_inputs = output.shape[0] != size == output.to_local().shape[0]
        spread, reduced, shared = [], [], []
        for placement in output.placements:
            own = own_inputs and placement.is_shard(0)
            features = _along(1, placement, axis) if dims > 1 else _replicated()
            partial = placement if placement.is_partial() and placement.reduce_op in _LINEAR else features
            reduced.append(partial)
            spread.append(placement if own or not partial.is_replicate() else _replicated())
            shared.append(not own)
        self._note_groups(mesh, shared)
        # Earlier versions of PyTorch refuse to leave a partial placement as it is.
        placed = output if tuple(spread) == tuple(output.placements) else output.redistribute(placements=spread)
        neurons = reduce(_finished(placed.to_local()))
        width = output.shape[axis] if dims > 1 else 1
        if neurons.shape[1] < width:
            self._parts[layer] = neurons.shape[1]
        return _gathered(neurons, mesh, reduced, width)

    def _note_groups(self, mesh: Any, spread: Sequence[bool]) -> None:
        for dim in range(mesh.ndim) if any(spread) else ():
            if spread[dim]:
                group = mesh.get_group(dim)
                self._groups[group.group_name] = group


def _is_dtensor(value: Any) -> bool:
    # Whoever has a DTensor has imported this module; others need not wait for it.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def _replicated() -> Any:
    from torch.distributed.tensor import Replicate

    return Replicate()


def _along(new: int, placement: Any, old: int | None) -> Any:
    """Return the placement with its shards along another axis; whole if they were not along the old one."""
    if old is None or getattr(placement, "dim", None) != old:
        return _replicated()
    factor = getattr(placement, "split_factor", None)
    return type(placement)(new) if factor is None else type(placement)(new, split_factor=factor)


def _gathered(neurons: Tensor, mesh: Any, placements: Sequence[Any], width: int) -> Tensor:
    """Return all neurons, of which each rank has what its placements say."""
    from torch.distributed.tensor import DTensor

    shape = torch.Size((neurons.shape[0], width))
    part = DTensor.from_local(neurons, mesh, placements, run_check=False, shape=shape, stride=(width, 1))
    return _finished(part.full_tensor())


def _finished(tensor: Any) -> Tensor:
    """Return a plain tensor, waited for if a collective is still at work on it."""
    wait = getattr(tensor, "wait", None)
    return tensor if wait is None else wait()  # type: ignore[no-any-return]


def _require_agreement(layers: Mapping[str, Tensor], group: Any) -> None:
    names = ";".join(f"{name}:{tuple(neurons.shape)}" for name, neurons in layers.items())
    number = int.from_bytes(hashlib.sha256(names.encode()).digest()[:6], "big")
    home = next(iter(layers.values())).device
    least, most = _extremes(torch.tensor([number], dtype=torch.float64, device=home), group)
    if not torch.equal(least, most):
        raise LayerError(
            "ranks that share the layers of this model ran different layers or batches of different sizes: give all "
            "of them the same inputs, and leave out layers that only some of them run"
        )
    flat = torch.cat([neurons.to(home, torch.float64).flatten() for neurons in layers.values()])
    sizes = [neurons.numel() for neurons in layers.values()]
    ends = (torch.split(end, sizes) for end in _extremes(flat.nan_to_num(0, 0, 0), group))
    for layer, least, most in zip(layers, *ends, strict=True):
        if least.numel() and (most - least).max() > _TOLERANCE * torch.maximum(most, -least).max():
            raise LayerError(
                f"layer {layer!r} gives every rank another part of its output, in which features are not what is "
                "split: let its style give DTensors (use_local_output=False) or whole outputs, or leave the layer "
                f"out, for example with layers='!{layer}'"
            )


def _extremes(numbers: Tensor, group: Any) -> tuple[Tensor, Tensor]:
    least, most = numbers.clone(), numbers.clone()
    distributed.all_reduce(least, distributed.ReduceOp.MIN, group)
    distributed.all_reduce(most, distributed.ReduceOp.MAX, group)
    return least, most

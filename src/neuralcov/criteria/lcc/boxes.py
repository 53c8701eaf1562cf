"""From a layer's outputs to the box they lie in, and to the 128-bit keys of boxes and kinds.

Every layer has ``directions`` random directions of signs. The sum of the outputs along each, in units of how far it
varies over training data, is cut into steps of 1/``resolution``, at a random offset: the steps are the box. All of it
follows from the layer's name and the seed, so that anybody can compute the same boxes from the definition alone.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.digests import GOLDEN_RATIO, splitmix64
from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.kernels.operations import kind_keys_fused, triton_available

_FARTHEST = 2.0**31


def layer_key(seed: int, layer: str) -> int:
    """Return the number from which all random choices for a layer follow, as a signed one of 64 bits.

    >>> layer_key(0, "fc")
    -4719950013153998654
    """
    digest = hashlib.sha256(f"neuralcov.LCC/{seed}/{layer}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def mix(numbers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Return the numbers that SplitMix64 gives for these seeds."""
    return splitmix64(numbers + GOLDEN_RATIO)


@lru_cache(maxsize=256)
def signs(
    names: tuple[str, ...], width: int, directions: int, seed: int, device: torch.device
) -> Float[Tensor, "layers width directions"]:
    """Return the directions of layers of one width: +1 or −1 for every neuron."""
    places = torch.arange(width * directions, device=device)
    # A number whose top bit is set is negative.
    drawn = torch.stack([mix(places + layer_key(seed, name)) for name in names]) < 0
    return torch.where(drawn, 1.0, -1.0).double().view(len(names), width, directions)


@lru_cache(maxsize=64)
def offsets(
    widths: tuple[tuple[str, int], ...], directions: int, seed: int, device: torch.device
) -> Float[Tensor, "layers directions"]:
    """Return where, within a step, the cuts of each layer begin: numbers in [0, 1)."""
    first = torch.tensor([layer_key(seed, name) for name, _ in widths])
    behind = torch.tensor([width * directions for _, width in widths])
    drawn = mix((first + behind)[:, None] + torch.arange(directions))
    return (((drawn >> 11) & ((1 << 53) - 1)).double() * 2.0**-53).to(device)


@lru_cache(maxsize=64)
def starts(names: tuple[str, ...], seed: int, device: torch.device) -> Int[Tensor, "layers 2"]:
    """Return the two words that the keys of each layer begin with."""
    keys = torch.tensor([layer_key(seed, name) for name in names])
    return torch.stack([keys, mix(keys)], dim=1).to(device)


def project(batch: Activations, directions: int, seed: int) -> Float[Tensor, "layers batch directions"]:
    """Return the sums of outputs along the directions, layers in execution order; 0 where an input lacks a layer."""
    return batch.shared(("projections", directions, seed), lambda: _project(batch, directions, seed))


def _project(batch: Activations, directions: int, seed: int) -> Tensor:
    parts = []
    for stack in batch.stacks:
        along = signs(stack.names, stack.values.shape[2], directions, seed, stack.values.device)
        sums = torch.empty(len(stack.names), batch.size, directions, dtype=torch.float64, device=stack.values.device)
        for rows in blocks(batch.size, stack.values.shape[1:].numel(), stack.values.device):
            torch.bmm(stack.values[rows].double().transpose(0, 1), along, out=sums[:, rows])
        parts.append(sums)
    if len(parts) == 1:
        return parts[0]
    places = tuple(position for stack in batch.stacks for position in stack.positions)
    return torch.cat(parts).index_select(0, _inverse(places, parts[0].device))


@lru_cache(maxsize=64)
def _inverse(places: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(places).argsort().to(device)


def present(batch: Activations) -> Bool[Tensor, "batch layers"] | None:
    """Return which inputs have which layers and are finite, layers in execution order; ``None`` if all do."""
    if all(stack.valid is None for stack in batch.stacks):
        return None
    masks = torch.cat([stack.valid_mask() for stack in batch.stacks], dim=1)
    places = tuple(position for stack in batch.stacks for position in stack.positions)
    return masks.index_select(1, _inverse(places, masks.device))


def cells(
    projections: Float[Tensor, "layers batch directions"],
    resolution: float,
    mean: Float[Tensor, "layers directions"],
    std: Float[Tensor, "layers directions"],
    offset: Float[Tensor, "layers directions"],
) -> Int[Tensor, "layers batch directions"]:
    """Return the steps in which projections lie; 0 along directions whose ``std`` is 0."""
    varied = (std > 0)[:, None]
    steps = resolution * (projections - mean[:, None]) / torch.where(varied, std[:, None], 1.0) + offset[:, None]
    return torch.where(varied, steps.floor().clamp(-_FARTHEST, _FARTHEST), 0.0).long()


def box_keys(
    steps: Int[Tensor, "layers batch directions"], begin: Int[Tensor, "layers 2"]
) -> Int[Tensor, "layers batch 2"]:
    """Return the keys of boxes."""
    words = begin[:, None].expand(-1, steps.shape[1], -1)
    for step in steps.unbind(2):
        words = mix(words ^ step[:, :, None])
    return words


def kind_keys(
    boxes: Int[Tensor, "layers batch 2"], classes: Int[Tensor, "batch"] | None
) -> Int[Tensor, "layers batch 2"]:
    """Return the keys of kinds: a box and the class that the model chose, or a box alone."""
    return mix(boxes if classes is None else boxes ^ (classes + 1)[:, None])


def boxes_and_kinds(
    projections: Float[Tensor, "layers batch directions"],
    resolution: float,
    cuts: tuple[Tensor, Tensor, Tensor],
    begin: Int[Tensor, "layers 2"],
    classes: Int[Tensor, "batch"] | None,
) -> tuple[Int[Tensor, "layers batch 2"], Int[Tensor, "layers batch 2"]]:
    """Return the keys of the boxes and of the kinds of a batch.

    ``cuts`` are mean and std of the projections of training data, and the offsets.
    """
    if triton_available(projections.device):
        return kind_keys_fused(projections, resolution, *cuts, begin, classes)
    boxes = box_keys(cells(projections, resolution, *cuts), begin)
    return boxes, kind_keys(boxes, classes)

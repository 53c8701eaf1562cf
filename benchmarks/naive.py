"""Each criterion as one would first write it: PyTorch operations layer by layer, loops where the definition has them.

Every function takes the batches' activations as a list of (batch, neurons) tensors, one per layer, and returns
the value. They serve as a yardstick for speed; the tests have oracles of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn

Layers = list[Tensor]
Moments = tuple[int, Tensor, Tensor]


def activations(model: nn.Module, batch: Tensor) -> Layers:
    """A forward pass with hooks registered for it, feature maps kept until it ends."""
    outputs: Layers = []
    kinds = (nn.Conv2d, nn.Linear)
    handles = [
        module.register_forward_hook(lambda _, __, output: outputs.append(output))
        for module in model.modules()
        if isinstance(module, kinds)
    ]
    with torch.no_grad():
        model(batch)
    for handle in handles:
        handle.remove()
    return [output.mean((2, 3)) if output.dim() == 4 else output.clone() for output in outputs]


def nc(batches: Iterable[Layers], threshold: float = 0.75) -> float:
    covered: Layers = []
    for layers in batches:
        covered = covered or [torch.zeros(a.shape[1], dtype=torch.bool, device=a.device) for a in layers]
        for seen, a in zip(covered, layers, strict=True):
            low, high = a.min(1, keepdim=True).values, a.max(1, keepdim=True).values
            seen |= (((a - low) / (high - low)) > threshold).any(0)
    return float(sum(int(c.sum()) for c in covered) / sum(len(c) for c in covered))


def kmnc(batches: Iterable[Layers], ranges: list[tuple[Tensor, Tensor]], sections: int = 100) -> float:
    covered: Layers = []
    for layers in batches:
        covered = covered or [torch.zeros(a.shape[1], sections, dtype=torch.bool, device=a.device) for a in layers]
        for seen, a, (low, high) in zip(covered, layers, ranges, strict=True):
            place = ((a - low) / (high - low) * sections).floor()
            for section in range(sections):
                seen[:, section] |= (place == section).any(0)
    return float(sum(int(c.sum()) for c in covered) / sum(c.numel() for c in covered))


def nbc(batches: Iterable[Layers], ranges: list[tuple[Tensor, Tensor]]) -> float:
    upper: Layers = []
    lower: Layers = []
    for layers in batches:
        upper = upper or [torch.zeros(a.shape[1], dtype=torch.bool, device=a.device) for a in layers]
        lower = lower or [torch.zeros_like(u) for u in upper]
        for above, below, a, (low, high) in zip(upper, lower, layers, ranges, strict=True):
            above |= (a > high).any(0)
            below |= (a < low).any(0)
    return float(sum(int(c.sum()) for c in upper + lower) / (2 * sum(len(c) for c in upper)))


def snac(batches: Iterable[Layers], ranges: list[tuple[Tensor, Tensor]]) -> float:
    upper: Layers = []
    for layers in batches:
        upper = upper or [torch.zeros(a.shape[1], dtype=torch.bool, device=a.device) for a in layers]
        for above, a, (_, high) in zip(upper, layers, ranges, strict=True):
            above |= (a > high).any(0)
    return float(sum(int(c.sum()) for c in upper) / sum(len(c) for c in upper))


def tknc(batches: Iterable[Layers], k: int = 10) -> float:
    covered: list[set[int]] = []
    widths: list[int] = []
    for layers in batches:
        covered = covered or [set() for _ in layers]
        widths = [a.shape[1] for a in layers]
        for seen, a in zip(covered, layers, strict=True):
            seen.update(a.topk(min(k, a.shape[1]), dim=1).indices.flatten().tolist())
    return sum(len(c) for c in covered) / sum(widths)


def tknp(batches: Iterable[Layers], k: int = 50) -> float:
    patterns = set()
    for layers in batches:
        tops = [a.topk(min(k, a.shape[1]), dim=1).indices.sort(1).values for a in layers]
        for row in range(layers[0].shape[0]):
            patterns.add(tuple(tuple(top[row].tolist()) for top in tops))
    return float(len(patterns))


def nlc(batches: Iterable[Layers]) -> float:
    """The growing rule, with covariances as ``torch.cov`` gives them."""
    state: list[tuple[Moments, float] | None] = []
    for layers in batches:
        state = state or [None] * len(layers)
        for index, a in enumerate(layers):
            known = state[index]
            joined = _joined(None if known is None else known[0], a)
            value = float(joined[2].abs().sum()) / a.shape[1] ** 2
            if known is None or value > known[1]:
                state[index] = (joined, value)
    return sum(known[1] for known in state if known is not None)


def lvc(batches: Iterable[Layers], training: Layers, ridge: float = 1e-4) -> float:
    """Volumes of covariances that grow batch by batch, in units of the training covariances."""
    state: list[Moments | None] = []
    for layers in batches:
        state = state or [None] * len(layers)
        state = [_joined(known, a.double()) for known, a in zip(state, layers, strict=True)]
    volumes = []
    for known, of_training in zip(state, training, strict=True):
        assert known is not None
        cov = known[2]
        width = len(cov)
        base = of_training + ridge * of_training.trace() / width * torch.eye(width, dtype=cov.dtype, device=cov.device)
        volumes.append(float(torch.logdet(base + cov) - torch.logdet(base)) / (width * math.log(2)))
    return sum(volumes) / len(volumes)


def _joined(known: Moments | None, a: Tensor) -> Moments:
    """Number, mean and covariance of the inputs so far and a batch."""
    size, mean, cov = len(a), a.mean(0), torch.cov(a.T, correction=0).reshape(a.shape[1], a.shape[1])
    if known is None:
        return size, mean, cov
    n, old_mean, old_cov = known
    total, apart = n + size, old_mean - mean
    cov = (n * old_cov + size * cov) / total + n * size * torch.outer(apart, apart) / total**2
    return total, (n * old_mean + size * mean) / total, cov


def ss(batches: Iterable[Layers]) -> float:
    """Every input against every earlier one, for every two consecutive layers."""
    before: list[Layers] = []
    shown: Layers = []
    for layers in batches:
        signs = [a > 0 for a in layers]
        shown = shown or [
            torch.zeros(a.shape[1], b.shape[1], dtype=torch.bool, device=a.device) for a, b in pairwise(signs)
        ]
        for row in zip(*signs, strict=True):
            for other in before:
                for pair, (own, following) in zip(shown, pairwise(zip(row, other, strict=True)), strict=True):
                    changed = own[0] != own[1]
                    if int(changed.sum()) == 1:
                        pair[changed] |= following[0] != following[1]
            before.append(list(row))
    return sum(int(pair.sum()) for pair in shown) / sum(pair.numel() for pair in shown)


def cc(batches: Iterable[Layers], distance: float = 10) -> float:
    centres: list[list[Tensor]] = []
    for layers in batches:
        centres = centres or [[] for _ in layers]
        for own, a in zip(centres, layers, strict=True):
            for row in a:
                if all(float((row - centre).norm()) > distance for centre in own):
                    own.append(row)
    return float(sum(len(own) for own in centres))


def lsc(batches: Iterable[Layers], traces: Tensor, classes: Tensor, found: Callable[[Layers], Tensor]) -> float:
    buckets = set()
    for layers in batches:
        rows = torch.cat(layers, 1)
        for row, label in zip(rows, found(layers), strict=True):
            own = traces[classes == label]
            kernel = torch.logsumexp(-(own - row).square().sum(1) / (2 * 0.2**2), 0)
            score = math.log(len(own)) + 0.5 * own.shape[1] * math.log(2 * math.pi * 0.2**2) - kernel
            buckets.add(float(score) // 10)
    return float(len(buckets))


def dsc(batches: Iterable[Layers], traces: Tensor, classes: Tensor, found: Callable[[Layers], Tensor]) -> float:
    buckets = set()
    for layers in batches:
        rows = torch.cat(layers, 1)
        for row, label in zip(rows, found(layers), strict=True):
            own, others = traces[classes == label], traces[classes != label]
            to_own = (own - row).norm(dim=1)
            nearest = own[to_own.argmin()]
            buckets.add(float(to_own.min() / (others - nearest).norm(dim=1).min()) // 0.1)
    return float(len(buckets))


def mdsc(
    batches: Iterable[Layers],
    fits: dict[int, tuple[Tensor, Tensor]],
    found: Callable[[Layers], Tensor],
) -> float:
    """With a mean and an inverse covariance for each class."""
    buckets = set()
    for layers in batches:
        rows = torch.cat(layers, 1)
        for row, label in zip(rows, found(layers), strict=True):
            mean, inverse = fits[int(label)]
            apart = row.double() - mean
            buckets.add(float((apart @ inverse @ apart).sqrt()) // 10)
    return float(len(buckets))


def mdsc_fits(traces: Tensor, classes: Tensor, ridge: float = 1e-2) -> dict[int, tuple[Tensor, Tensor]]:
    """Per class the mean and the inverse of the regularised covariance, neurons by neurons."""
    fits = {}
    for label in classes.unique().tolist():
        own = traces[classes == label].double()
        cov = torch.cov(own.T, correction=0)
        cov.diagonal().add_(ridge * cov.trace() / len(cov))
        fits[label] = (own.mean(0), torch.linalg.inv(cov))
    return fits


def npc(
    explained: Iterable[tuple[Layers, Tensor]],
    abstract: dict[int, list[set[int]]],
    alpha: float = 0.7,
    buckets: int = 100,
) -> float:
    """Paths as sets of neurons, input by input, from relevance layer by layer and predicted classes."""
    covered = set()
    for relevance, predicted in explained:
        for row, label in enumerate(predicted.tolist()):
            path = path_of([layer[row] for layer in relevance], alpha)
            for cluster, other in enumerate(abstract.get(label, [])):
                alike = len(path & other) / max(1, len(path | other))
                covered.add((label, cluster, min(int(alike * buckets), buckets - 1)))
    return len(covered) / (len(abstract) * max(map(len, abstract.values())) * buckets)


def path_of(relevance: Layers, alpha: float = 0.7) -> set[int]:
    """Neurons of one input's path, counted through all layers."""
    path: set[int] = set()
    first = 0
    for layer in relevance:
        falling, order = layer.double().clamp(min=0).sort(descending=True, stable=True)
        wanted, reached = alpha * float(falling.sum()), 0.0
        for value, neuron in zip(falling.tolist(), order.tolist(), strict=True):
            if value <= 0 or reached >= wanted:
                break
            path.add(first + neuron)
            reached += value
        first += len(layer)
    return path

"""Walk nested inputs and outputs: tensors in tuples, lists and mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def tensors(tree: Any) -> Iterator[Tensor]:
    """Yield every tensor, depth first.

    >>> [len(tensor) for tensor in tensors((torch.zeros(2), {"a": [torch.zeros(3)], "b": None}))]
    [2, 3]
    """
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for part in tree.values():
            yield from tensors(part)
    elif isinstance(tree, (tuple, list)):
        for part in tree:
            yield from tensors(part)


def map_leaves(tree: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return a tree of the same form with every tensor changed.

    >>> map_leaves({"a": (torch.zeros(2), 3)}, len)
    {'a': (2, 3)}
    """
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {name: map_leaves(part, change) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_leaves(part, change) for part in tree)
    return [map_leaves(part, change) for part in tree] if isinstance(tree, list) else tree


def plain_output(output: Any) -> Any:
    """Return a model's output as a tree: objects that are none but hold ``logits`` are replaced by these."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        return {name: plain_output(part) for name, part in output.items()}
    if isinstance(output, (tuple, list)):
        return tuple(plain_output(part) for part in output)
    logits = getattr(output, "logits", None)
    return logits if isinstance(logits, Tensor) else output


def take_rows(tree: Any, rows: Tensor, size: int) -> Any:
    """Return the tree of some inputs of a batch of ``size``; tensors that have no row per input stay as they are."""
    if isinstance(tree, Tensor):
        return tree[rows.to(tree.device)] if _has_rows(tree, size) else tree
    if isinstance(tree, Mapping):
        return {name: take_rows(part, rows, size) for name, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        return tuple(take_rows(part, rows, size) for part in tree)
    return tree


def cat_rows(trees: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Join the trees of several batches of these sizes; of parts that have no row per input the first stays."""
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.cat(list(trees)) if _has_rows(first, sizes[0]) else first
    if isinstance(first, Mapping):
        return {name: cat_rows([tree[name] for tree in trees], sizes) for name in first}
    if isinstance(first, (tuple, list)):
        return tuple(cat_rows(parts, sizes) for parts in zip(*trees, strict=True))
    return first


def finite_rows(tree: Any, size: int) -> Tensor:
    """Return whether all numbers that belong to an input are finite, ``(size,)``."""
    found = [tensor for tensor in tensors(tree) if _has_rows(tensor, size) and tensor.is_floating_point()]
    if not found:
        return torch.ones(size, dtype=torch.bool)
    checks = [torch.isfinite(tensor).reshape(size, -1).all(1).to(found[0].device) for tensor in found]
    return torch.stack(checks).all(0)


def _has_rows(tensor: Tensor, size: int) -> bool:
    return tensor.dim() > 0 and tensor.shape[0] == size

"""Parameters that belong to no measured layer: what a model computes with them is not seen by any criterion.

Experts kept as parameters, ``F.linear`` on a parameter and other functional calls are no module's output. A parameter
belongs to the module that owns it and to all modules around that one; it is measured if one of these is, so that an
attention module answers for its projections, and a chosen block for all within. Tied parameters count once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import UninitializedParameter

from neuralcov.core.findings import Unmeasured
from neuralcov.tap.axes import holds_experts, is_layer_by_default
from neuralcov.tap.layers import named_layers

_LISTED = 5
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_NORMS = (nn.LayerNorm, nn.GroupNorm, _NormBase)
_NAMED_NORM = re.compile(r"Norm(\dd)?$")


def unmeasured(model: nn.Module, measured: Iterable[nn.Module], *, by_choice: bool) -> Unmeasured:
    """Count the parameters that belong to no measured layer.

    Args:
        model: the whole model.
        measured: the modules whose outputs are measured.
        by_choice: whether the user chose the layers, and so left others out on purpose.
    """
    # Of experts kept as parameters one sum is seen, nothing of each.
    seen = _within(module for module in measured if not holds_experts(module))
    choosable = (module for module in model.modules() if is_layer_by_default(module) and not holds_experts(module))
    left_out = _within(choosable) if by_choice else set()
    embeddings = {module for module in model.modules() if isinstance(module, _EMBEDDINGS)} | _output_embeddings(model)
    total = missing = counted = 0
    unseen: dict[str, int] = {}
    for places, size in _parameters(model):
        owners = {module for _, module in places}
        total += size
        if owners & seen:
            counted += size
            continue
        missing += size
        if owners & embeddings or any(_is_minor(name, module) for name, module in places):
            continue
        counted += size
        if not owners & left_out:
            unseen[places[0][0]] = size
    largest = sorted(unseen.items(), key=lambda item: -item[1])[:_LISTED]
    return Unmeasured(missing / max(total, 1), sum(unseen.values()) / max(counted, 1), dict(largest))


def _parameters(model: nn.Module) -> Iterator[tuple[list[tuple[str, nn.Module]], int]]:
    """Yield every parameter once: its names, each with the module that owns it there, and its size over all ranks."""
    places: dict[int, list[tuple[str, nn.Module]]] = {}
    sizes: dict[int, int] = {}
    for prefix, module in named_layers(model).items():
        for name, parameter in module._parameters.items():
            # Of a flat parameter, nobody knows which module's it is.
            if parameter is None or isinstance(parameter, UninitializedParameter) or name == "_flat_param":
                continue
            places.setdefault(id(parameter), []).append((name if module is model else f"{prefix}.{name}", module))
            sizes[id(parameter)] = parameter.numel()
    return ((places[key], sizes[key]) for key in places)


def _within(modules: Iterable[nn.Module]) -> set[nn.Module]:
    return {inner for module in modules for inner in module.modules()}


def _output_embeddings(model: nn.Module) -> set[nn.Module]:
    """Return what Hugging Face models turn features into tokens with: an embedding, read the other way round."""
    find = getattr(model, "get_output_embeddings", None)
    try:
        found = find() if callable(find) else None
    except NotImplementedError:  # how some of them say that they have none
        found = None
    return {found} if isinstance(found, nn.Module) else set()


def _is_minor(name: str, owner: nn.Module) -> bool:
    """Return whether a parameter is a norm's or, by its name, an embedding such as ``pos_embed``."""
    if isinstance(owner, _NORMS) or _NAMED_NORM.search(type(owner).__name__):
        return True
    return "embed" in name.rpartition(".")[2].lower()

"""Layers of models that another runtime computes: modules that only pass their outputs on, for hooks to read."""

from __future__ import annotations

from torch import Tensor, nn


class ReadOut(nn.Module):
    """Pass on the output of a layer that was computed elsewhere; the tap reads it here.

    Args:
        width: how many neurons the layer has.
        channels_first: whether features lie on axis 1 rather than on the last one.
    """

    def __init__(self, width: int, *, channels_first: bool) -> None:
        super().__init__()
        self.out_features, self.channels_first = width, channels_first

    def forward(self, output: Tensor) -> Tensor:
        """Return the output as it is."""
        return output

    @property
    def wanted(self) -> bool:
        """Whether anybody listens, so that the output has to be fetched."""
        return bool(self._forward_hooks)


def kind_of_layer(name: str) -> type[ReadOut]:
    """Return a class of layers under the name that listings show, such as ``Conv``."""
    return type(name, (ReadOut,), {"__doc__": f"Pass on the output of a {name}."})


def place(root: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module into a model under a name with dots, with plain modules between.

    >>> root = nn.Module()
    >>> place(root, "block.0.conv", nn.Identity())
    >>> [name for name, _ in root.named_modules()]
    ['', 'block', 'block.0', 'block.0.conv']
    """
    *path, last = [part or "_" for part in name.split(".")]
    for part in path:
        free = _free(root, part)
        if free not in root._modules:
            root.add_module(free, nn.Module())
        root = root.get_submodule(free)
    free = _free(root, last)
    held = root._modules.get(free)
    if held is not None:
        # Made above for a layer within this one.
        for inner, child in held.named_children():
            module.add_module(inner, child)
        del root._modules[free]
    root.add_module(free, module)


def _free(parent: nn.Module, part: str) -> str:
    """Return a name for a child that hides no attribute of the parent."""
    while hasattr(parent, part) and part not in parent._modules:
        part += "_"
    return part

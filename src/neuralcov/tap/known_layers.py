"""The layers that passes have shown; where those stand that did not fire, and how wide they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from neuralcov.core.errors import LayerError
from neuralcov.core.layout import Layout
from neuralcov.tap.axes import axes_of, declared_width, static_width
from neuralcov.tap.forward_pass import ForwardPass
from neuralcov.tap.known_rows import KnownRows
from neuralcov.tap.layers import module_name
from neuralcov.tap.recurrent import TimeSteps
from neuralcov.tap.shards import require_whole


class KnownLayers:
    """The layers that a model's passes have shown, with their widths.

    Args:
        chosen: the modules that are layers.
        rows: what is known about the order of their rows.
        steps: what is known about their time steps.
    """

    def __init__(self, chosen: Mapping[str, nn.Module], rows: KnownRows, steps: TimeSteps) -> None:
        self.widths: dict[str, int] = {}
        self._chosen, self._rows, self._steps = chosen, rows, steps
        self._fired: set[str] = set()
        self._checked = False

    def fork(self, rows: KnownRows, steps: TimeSteps) -> KnownLayers:
        """Return a copy that goes its own way, beside rows and steps that do."""
        twin = KnownLayers(self._chosen, rows, steps)
        twin.widths, twin._fired, twin._checked = dict(self.widths), set(self._fired), self._checked
        return twin

    def expect(self, layers: Layout) -> None:
        """Go on with the layers that an earlier measurement recorded."""
        self.widths = dict(layers.widths)
        self._fired |= {module_name(layer) for layer in layers}

    def note(self, calls: Iterable[str]) -> None:
        """Note which modules fired in a pass."""
        self._fired.update(calls)

    @property
    def silent(self) -> list[str]:
        """Return the modules that have never fired."""
        return [name for name in self._chosen if name not in self._fired]

    def complete(self, forward_pass: ForwardPass, model: nn.Module) -> None:
        """Fill in layers that did not fire in this pass, and calls of recurrent cells that shorter inputs lack."""
        left_out = self._rows.left_out
        if not forward_pass.layers and left_out.keys() >= self._chosen.keys():
            layer, why = next(iter(left_out.items()))
            raise LayerError(
                f"no layer tells which of its rows belong to which input, such as {layer!r} ({why}): pass rows=, a "
                "function from layer and output to the input of each row, -1 for none"
            )
        if not forward_pass.layers:
            raise never_fired([name for name in self._chosen if name not in left_out])
        if not self._checked:
            # Once: a layer whose width changes later does not fit the layout.
            for name, module in self._chosen.items():
                if name in forward_pass.layers:
                    require_whole(name, forward_pass.layers[name], declared_width(module))
            self._checked = True
        self._steps.complete(forward_pass)
        if not self.widths:
            widths = {layer: outputs.shape[-1] for layer, outputs in forward_pass.layers.items()}
            silent = [name for name in self._chosen if name not in forward_pass.calls and name not in left_out]
            self.widths = with_silent_modules(widths, self._chosen, silent, self._rows.widths, self._steps.most)
        if not self.widths.keys() <= forward_pass.layers.keys():
            self._refuse_strangers(forward_pass, model)
            fill_absent(forward_pass.layers, forward_pass.present, self.widths, forward_pass.size)
            order = [*self.widths, *(layer for layer in forward_pass.layers if layer not in self.widths)]
            forward_pass.layers = {layer: forward_pass.layers[layer] for layer in order}

    def require_fired(self) -> None:
        """Refuse to go on if a module has never fired that is not left out."""
        silent = [name for name in self.silent if name not in self._rows.left_out]
        if silent:
            raise never_fired(silent)

    def _refuse_strangers(self, forward_pass: ForwardPass, model: nn.Module) -> None:
        """Refuse layers that did not fire because the model has another module in their place by now."""
        there = set(model.modules())
        gone = [name for name, module in self._chosen.items() if name not in forward_pass.calls and module not in there]
        if gone:
            raise never_fired(gone)


def fill_absent(layers: dict[str, Tensor], present: dict[str, Tensor], widths: Mapping[str, int], size: int) -> None:
    """Add zeros for layers that no input reached, and say so in ``present``."""
    like = next(iter(layers.values()))
    for layer, width in widths.items():
        if layer not in layers:
            layers[layer] = torch.zeros(size, width, dtype=like.dtype, device=like.device)
            present[layer] = torch.zeros(size, dtype=torch.bool, device=like.device)


def with_silent_modules(
    widths: Mapping[str, int],
    chosen: Mapping[str, nn.Module],
    silent: Sequence[str],
    known: Mapping[str, int],
    steps: int | None,
) -> dict[str, int]:
    """Return the widths of all layers; one that did not fire stands behind the module defined before it.

    Args:
        widths: of the layers that fired, in execution order.
        chosen: all modules that are layers, in the order of their definition.
        silent: those that did not fire.
        known: widths that a run of the probe showed.
        steps: time steps of recurrent layers, if somebody said how many.
    """
    order = list(widths)
    found = dict(widths)
    behind = 0
    for name, module in chosen.items():
        if name in silent:
            added = _layers_of(name, module, steps)
            order[behind:behind] = added
            behind += len(added)
            found |= dict.fromkeys(added, _width_of(name, module, known, silent))
        else:
            behind = max([behind, *(place + 1 for place, layer in enumerate(order) if module_name(layer) == name)])
    return {layer: found[layer] for layer in order}


def never_fired(silent: Sequence[str]) -> LayerError:
    """Return the error that names modules which never fired."""
    return LayerError(
        f"layer {silent[0]!r} did not run in any forward pass"
        + (f" (nor did {len(silent) - 1} more)" if len(silent) > 1 else "")
        + f"; leave it out, for example with layers='!{silent[0]}'"
    )


def _layers_of(name: str, module: nn.Module, steps: int | None) -> list[str]:
    kind = axes_of(module)
    if not kind.recurrent and not kind.cell:
        return [name]
    if steps is None:
        raise LayerError(
            f"layer {name!r} did not run in the first forward pass, which tells how many steps it takes: "
            f"pass steps=, or leave it out, for example with layers='!{name}'"
        )
    if kind.recurrent:
        return [f"{name}[{step}]" for step in range(steps)]
    return [name, *(f"{name}#{step}" for step in range(1, steps))]


def _width_of(name: str, module: nn.Module, known: Mapping[str, int], silent: Sequence[str]) -> int:
    width = known.get(name, static_width(module))
    if width is None:
        raise never_fired([name, *(other for other in silent if other != name)])
    return width

"""The relevance pass: from the predicted logit back to every chosen layer, along the tape of one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError, LayerError
from neuralcov.core.shapes import Float, Int
from neuralcov.tap.axes import axes_of
from neuralcov.tap.forward_pass import ForwardPass
from neuralcov.tap.layers import module_name
from neuralcov.tap.outputs import scores_of, to_neurons
from neuralcov.tap.relevance_rules import CONSTANT, ENDINGS, VALUELESS, WEIGHTED, pass_back
from neuralcov.tap.rows import by_owner
from neuralcov.tap.tape import Spot, Tape


def relevance_tape(model: nn.Module) -> Tape:
    """Return a tape to run ``model`` under, so that relevance can go back along it."""
    return Tape(model, weighted=WEIGHTED, valueless=VALUELESS, constant=CONSTANT)


def explain(
    forward_pass: ForwardPass, chosen: Mapping[str, nn.Module], output: Any, classes: Int[Tensor, "batch"]
) -> dict[str, Float[Tensor, "batch _"]] | None:
    """Return the relevance of every layer's neurons after a pass, ``None`` if it was not asked for.

    Args:
        forward_pass: of the pass.
        chosen: the modules that are layers.
        output: what the model returned.
        classes: the class to explain for each input.
    """
    scores = scores_of(output)
    if forward_pass.tape is None or scores is None:
        return None

    def reduce(layer: str, relevance: Tensor) -> Tensor:
        kind, rows = axes_of(chosen[module_name(layer)]), forward_pass.owned[layer]
        if isinstance(rows, Tensor):
            return by_owner(relevance, rows, forward_pass.size, kind, total=True)[0]
        return to_neurons(relevance, forward_pass.size, kind, layer, order=rows, total=True)

    found = layer_relevance(forward_pass.tape, scores, classes, reduce)
    return {name: found[name] if name in found else torch.zeros_like(x) for name, x in forward_pass.layers.items()}


def refuse_recurrent(chosen: Mapping[str, nn.Module]) -> None:
    """Refuse recurrent layers, for which there is no rule."""
    for name, module in chosen.items():
        if axes_of(module).recurrent or axes_of(module).cell:
            raise LayerError(
                f"layer {name!r} is recurrent ({type(module).__name__}), for which there is no relevance rule: "
                f"leave it out, for example with layers='!{name}', or leave NPC out"
            )


def layer_relevance(
    tape: Tape,
    scores: Tensor,
    classes: Int[Tensor, "batch"],
    reduce: Callable[[str, Tensor], Tensor],
) -> dict[str, Float[Tensor, "batch _"]]:
    """Return how far each neuron of each chosen layer speaks for the class the model chose.

    Relevance starts as the logit of that class and is handed back step by step, in one pass for the whole
    batch. It is that of a layer's output, before any activation behind it.

    Args:
        tape: of one forward pass; it is used up.
        scores: the model's output of shape (batch, classes), or (batch,) or (batch, 1) for two classes.
        classes: the class to explain for each input.
        reduce: from a layer's name and the relevance of its output to that of its neurons.
    """
    found: dict[str, Tensor] = {}
    try:
        with torch.no_grad(), torch.autocast(scores.device.type, enabled=False):
            spot, logits = _logits(tape, scores)
            spot.receive(_start(logits, classes))
            layers: dict[Spot, list[str]] = {}
            for layer, output in tape.layers.items():
                layers.setdefault(output, []).append(layer)
            for step in reversed(tape.steps):
                for output in step.outputs:
                    relevance = output.relevance() if output in layers else None
                    if relevance is not None:
                        found |= {layer: reduce(layer, relevance) for layer in layers[output]}
                if step.inputs and any(output.arrived for output in step.outputs):
                    pass_back(step)
                step.forget()
    finally:
        tape.clear()
    for layer in tape.layers:
        if layer not in found:
            raise LayerError(
                f"no relevance reaches layer {layer!r}: the logits do not come from its output, or not by functions "
                f"of torch; leave it out, for example with layers='!{layer}'"
            )
    return {layer: found[layer] for layer in tape.layers}


def _logits(tape: Tape, scores: Tensor) -> tuple[Spot, Tensor]:
    """Return where relevance starts: the scores, or what a softmax or sigmoid at the model's end was given."""
    spot = tape.spot(scores)
    if spot is None:
        raise LayerError(
            "no relevance reaches any layer: the model's output does not come from its layers by functions of torch"
        )
    while spot.step.name in ENDINGS:
        (held,) = spot.step.inputs
        assert held.value is not None
        spot, scores = held.spot, held.value
    return spot, scores


def _start(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the chosen class's logit where it stands, zero elsewhere; a single logit speaks against class 0."""
    values = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
    classes = classes.to(values.device)
    size = len(classes)
    if values.dim() == 2 and values.shape[0] == size and values.shape[1] >= 2:
        count = values.shape[1]
    elif values.shape in ((size,), (size, 1)):
        count = 2
    else:
        raise InputError(
            f"an output of shape {tuple(values.shape)} for a batch of {size}: relevance explains one logit per input, "
            "expected (batch, classes) or (batch,)"
        )
    if size and not bool(((classes >= 0) & (classes < count)).all()):
        raise InputError(
            f"a predicted class outside 0 … {count - 1}: relevance explains the logit of the predicted class, "
            "so predict= must return its index"
        )
    if values.dim() == 2 and values.shape[1] >= 2:
        chosen = torch.zeros_like(values, dtype=torch.bool).scatter_(1, classes[:, None], True)
        return values.masked_fill(~chosen, 0)
    return torch.where((classes == 1).reshape(values.shape), values, -values)

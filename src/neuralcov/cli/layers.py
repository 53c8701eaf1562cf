"""``neuralcov layers``: what of a model counts as layers, and how many neurons each has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import torch
import typer
from rich.table import Table
from torch import nn

from neuralcov.cli import options
from neuralcov.cli.console import output
from neuralcov.cli.layer_costs import cost_table
from neuralcov.core.cost import Workload
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError, NeuralcovError
from neuralcov.criteria import ALL
from neuralcov.sources.models import load_model
from neuralcov.sources.names import criterion_from_text
from neuralcov.tap import Batch, Tap


def layers(
    model: options.Model,
    input_shape: Annotated[
        str | None, typer.Option("--input", help="Shape of one input, such as 3,32,32; guessed where left out.")
    ] = None,
    tokens: Annotated[bool, typer.Option(help="Inputs are whole numbers (token ids), not floats.")] = False,
    layers: options.Layers = None,
    device: options.Device = "cpu",
    cost: Annotated[
        bool, typer.Option("--cost", help="Show what each criterion will take in memory for these layers.")
    ] = False,
    criteria: Annotated[
        list[str] | None, typer.Option("-c", "--criterion", help="With --cost: of these criteria, such as nlc.")
    ] = None,
    classes: Annotated[int, typer.Option(min=1, help="With --cost: classes that the model tells apart.")] = 10,
    inputs: Annotated[int, typer.Option(min=0, help="With --cost: inputs of the suite.")] = 10_000,
    training_inputs: Annotated[int, typer.Option(min=0, help="With --cost: training inputs to learn from.")] = 50_000,
) -> None:
    """Show the layers of a model with the shape of their outputs, their neurons and the totals."""
    net = load_model(model, device=device, empty=True)
    tap = Tap(net, layers)
    shapes = _output_shapes(tap)
    batch = _example(net, input_shape, tokens).to(tap.device)
    if batch.is_meta:
        # Two inputs would be looked at, to tell whose the rows are; of one input all rows are its own.
        batch = batch[:1]
    with tap.open(), shapes, _refusals(model, batch, guessed=input_shape is None):
        activations, _ = tap.run(Batch(batch))
    table = Table(title=f"{model}, inputs of shape {tuple(batch.shape[1:])}", title_justify="left")
    for column, justify in (("layer", "left"), ("type", "left"), ("output", "left"), ("neurons", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for name, outputs in activations.layers.items():
        base = name.split("#")[0].split("[")[0]
        shape = "×".join(map(str, shapes.seen.get(base, ())))
        table.add_row(name, type(tap.chosen[base]).__name__, shape, f"{outputs.shape[1]:,}")
    console = output()
    console.print(table)
    console.print(f"{counted(len(activations.layers), 'layer')}, {counted(activations.layout.neurons, 'neuron')}")
    if cost or criteria:
        # After the model, whose module may define criteria of its own.
        chosen = [criterion_from_text(text) for text in criteria] if criteria else [cls() for cls in ALL]
        costs, said = cost_table(chosen, activations.layout, Workload(inputs, training_inputs, classes))
        console.print(costs)
        for sentence in said:
            console.print(sentence)


class _output_shapes:  # noqa: N801 - used as a context, like a function
    """Note the shape that each chosen module returns for one input."""

    def __init__(self, tap: Tap) -> None:
        self.seen: dict[str, tuple[int, ...]] = {}
        self._tap = tap

    def __enter__(self) -> None:
        self._handles = [
            module.register_forward_hook(lambda _, __, out, name=name: self._note(name, out))
            for name, module in self._tap.chosen.items()
        ]

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _note(self, name: str, output: object) -> None:
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, torch.Tensor):
            self.seen.setdefault(name, tuple(first.shape[1:]))


@contextmanager
def _refusals(model: str, batch: torch.Tensor, *, guessed: bool) -> Iterator[None]:
    """Turn what a model says of inputs it cannot take, in errors of any kind, into one sentence."""
    try:
        yield
    except NeuralcovError:
        raise
    except Exception as error:
        shape = f"{'the guessed shape' if guessed else 'shape'} {tuple(batch.shape[1:])}"
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"model {model!r} does not take inputs of {shape} ({reason}): "
            "pass the shape of one input, such as --input 3,32,32, and --tokens for token ids"
        ) from error


def _example(net: nn.Module, text: str | None, tokens: bool) -> torch.Tensor:
    """Return one input, of the given shape or the one the first layer suggests."""
    if text is not None:
        try:
            shape = tuple(int(part) for part in text.replace("x", ",").split(","))
            if min(shape) < 1:
                raise ValueError("an axis without entries")
        except ValueError as error:
            raise InputError(f"--input {text!r}: expected whole numbers from 1, such as 3,32,32") from error
    else:
        shape, tokens = _guess(net)
    return torch.zeros(2, *shape, dtype=torch.long) if tokens else torch.zeros(2, *shape)


def _guess(net: nn.Module) -> tuple[tuple[int, ...], bool]:
    declared = getattr(net, "input_shape", None)
    # The first module with weights tells what kind of input it is; embeddings further on are of something else.
    for module in net.modules():
        if isinstance(module, nn.Embedding):
            return (tuple(declared) if declared else (128,)), True
        if isinstance(module, (nn.Conv2d, nn.Linear)) and declared:
            break
        if isinstance(module, nn.Conv2d):
            return (module.in_channels, 32, 32), False
        if isinstance(module, nn.Linear):
            return (module.in_features,), False
    if declared:
        return tuple(declared), False
    raise InputError("the shape of one input cannot be guessed: pass --input, such as --input 3,32,32")

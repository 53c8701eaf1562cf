"""``neuralcov measure``: how much of a model a suite exercises."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from neuralcov.cli import defaults, options
from neuralcov.cli.console import print_result
from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.results.input_table import writer_for
from neuralcov.sources.data import load_data, parse_channels
from neuralcov.sources.models import load_model, weights_of
from neuralcov.sources.names import criterion_from_text
from neuralcov.sources.npz import parse_padding


def measure(
    model: options.Model,
    data: Annotated[str, typer.Option(help="The suite: zoo:NAME, folder:PATH, npz:PATH, hf:PATH or module:factory.")],
    weights: options.Weights = None,
    criteria: Annotated[
        list[str] | None,
        typer.Option(
            "--criterion",
            "-c",
            help="Such as lcc, nc:0.75 or 'LSC(10, by=label)'; repeat it. Otherwise LCC, KMNC(100), SNAC and DSC on "
            "the last layer before the output; without --calibrate NLC, NC(0.75) and TKNC(10).",
        ),
    ] = None,
    calibrate: Annotated[str | None, typer.Option(help="Training data, or a saved calibration (.ncal).")] = None,
    init: Annotated[str | None, typer.Option(help="Data to update with first; the increase over it is shown.")] = None,
    layers: options.Layers = None,
    mean: options.Mean = None,
    std: options.Std = None,
    padding: options.Padding = "0",
    batch_size: options.BatchSize = 100,
    device: options.Device = "cpu",
    save: Annotated[Path | None, typer.Option(help="Write the coverage state (.ncov).")] = None,
    save_calibration: Annotated[Path | None, typer.Option(help="Write what calibration learnt (.ncal).")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
    slices: Annotated[
        str | None,
        typer.Option(help="Columns of metadata, or class, joined by commas: what each of their values covers."),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(help="Where data are mappings: their keys with metadata, joined by commas.")
    ] = None,
    per_input: Annotated[Path | None, typer.Option(help="Write a table of the inputs (.csv or .jsonl).")] = None,
    by_layer: Annotated[bool, typer.Option("--by-layer", help="Show every layer as well.")] = False,
    missing: Annotated[bool, typer.Option("--missing", help="List neurons of which nothing is covered.")] = False,
    errors: Annotated[
        bool,
        typer.Option(
            help="Keep standard errors of criteria that tick off cells too, for compare and gate to judge by."
        ),
    ] = True,
    cuda_graph: Annotated[bool, typer.Option("--cuda-graph", help="Record updates as CUDA graphs.")] = False,
) -> None:
    """Measure the coverage of a suite."""
    if save_calibration is not None and calibrate is None:
        raise InputError("--save-calibration needs something to save: give --calibrate as well")
    if per_input is not None:
        writer_for(per_input)
    columns = _split(slices)
    net = load_model(model, weights, device)
    origin, told = weights_of(model, net, weights)
    read = partial(
        load_data,
        batch_size=batch_size,
        mean=parse_channels(mean),
        std=parse_channels(std),
        padding=parse_padding(padding),
    )
    saved = calibrate is not None and Path(calibrate).is_file()
    training = None if calibrate is None or saved else read(calibrate, split="train")
    suite = read(data)
    if criteria:
        # After the model, whose module may define criteria of its own.
        chosen = [criterion_from_text(text) for text in criteria]
    elif calibrate is None:
        chosen = defaults.without_training_data()
    else:
        source = training or suite
        names, batches = defaults.layers_of(net, layers, source.loader, metadata=_split(metadata))
        chosen, source = defaults.with_training_data(names), replace(source, loader=batches)
        training, suite = (None, source) if training is None else (source, suite)
    chosen = defaults.with_errors(chosen) if errors else chosen
    scaling = {"mean": parse_channels(mean), "std": parse_channels(std)}
    preprocessing = scaling if any(scaling.values()) else None
    coverage = Coverage(
        net, chosen, layers=layers, cuda_graph=cuda_graph, preprocessing=preprocessing, metadata=_split(metadata)
    )
    notes = [told]
    if calibrate is not None:
        if training is None:
            coverage.calibrate(Path(calibrate))
        else:
            notes.append(training.note)
            coverage.calibrate(training.loader)
        if save_calibration is not None:
            coverage.save_calibration(save_calibration)
    before, earlier = None, 0
    if init is not None:
        first = read(init, split="train")
        notes.append(first.note)
        coverage.assess(first.loader)
        before, earlier = coverage.values(), coverage.inputs
    notes.append(suite.note)
    coverage.assess(suite.loader, slices=columns, per_input=per_input is not None)
    said = list(dict.fromkeys(sentence for sentence in notes if sentence is not None))
    result = coverage.results(
        model=model,
        suite=suite.name,
        inputs=coverage.inputs - earlier,
        before=before,
        weights=origin,
        notes=said,
        missing=missing,
    )
    # Files first: whoever reads the output may stop reading.
    if save is not None:
        coverage.save(save)
    if json is not None:
        result.write(json)
    if per_input is not None:
        coverage.per_input().write(per_input)
    print_result(result, by_layer=by_layer)


def _split(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",") if part.strip()]

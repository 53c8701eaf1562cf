"""``neuralcov measure``: how much of a model a suite exercises."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from neuralcov.cli import options
from neuralcov.cli.console import print_result
from neuralcov.cli.measuring import Names, measure_named, parse_share, split_columns
from neuralcov.cli.portable import plain_without_folders
from neuralcov.cli.workers import Work, own_device, shared_by
from neuralcov.core.errors import InputError
from neuralcov.core.files import require_writable
from neuralcov.coverage.reducing import SYNCS
from neuralcov.results.input_table import writer_for


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
    held_out: Annotated[
        str | None,
        typer.Option(help="Training data to keep out of calibration, as references: a share such as 0.1, or DATA."),
    ] = None,
    init: Annotated[str | None, typer.Option(help="Data to update with first; the increase over it is shown.")] = None,
    layers: options.Layers = None,
    pool: options.Pool = "mean",
    mean: options.Mean = None,
    std: options.Std = None,
    padding: options.Padding = "0",
    batch_size: options.BatchSize = 100,
    device: options.Device = "cpu",
    save: Annotated[str | None, typer.Option(help="Write the coverage state (.ncov).")] = None,
    save_calibration: Annotated[str | None, typer.Option(help="Write what calibration learnt (.ncal).")] = None,
    json: Annotated[str | None, typer.Option(help="Write the result as JSON.")] = None,
    evidence: Annotated[
        str | None, typer.Option(help="Write what was measured, with what and how, for verify (.json).")
    ] = None,
    tolerance: Annotated[
        str, typer.Option(help="How far the evidence may be off on other devices or software.")
    ] = "1%",
    slices: Annotated[
        str | None,
        typer.Option(help="Columns of metadata, or class, joined by commas: what each of their values covers."),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(help="Where data are mappings: their keys with metadata, joined by commas.")
    ] = None,
    per_input: Annotated[str | None, typer.Option(help="Write a table of the inputs (.csv or .jsonl).")] = None,
    gains: Annotated[
        list[str] | None,
        typer.Option(help="A criterion whose gains the table of inputs tells too, such as NLC; may be repeated."),
    ] = None,
    inputs: Annotated[
        bool,
        typer.Option(
            "--inputs/--no-inputs",
            help="Keep in the state file what reports show of inputs: up to 64 small pictures or texts, the table, "
            "the map. --no-inputs leaves out everything that shows or names an input.",
        ),
    ] = True,
    by_layer: Annotated[bool, typer.Option("--by-layer", help="Show every layer as well.")] = False,
    missing: Annotated[bool, typer.Option("--missing", help="List neurons of which nothing is covered.")] = False,
    errors: Annotated[
        bool,
        typer.Option(
            help="Keep standard errors of criteria that tick off cells too, for compare and gate to judge by."
        ),
    ] = True,
    cuda_graph: Annotated[
        bool | None,
        typer.Option(
            "--cuda-graph/--no-cuda-graph",
            help="Record updates as CUDA graphs, or never; by default where nothing speaks against it.",
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(help="Measure one of so many shards of the suite, such as 3/64, for combine.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Share the suite among so many local processes.")] = 1,
    sync: Annotated[
        str,
        typer.Option(help="With several processes: end merges at the end, step observes every step's batches as one."),
    ] = "end",
) -> None:
    """Measure the coverage of a suite. Processes that torchrun started share it."""
    if save_calibration is not None and calibrate is None:
        raise InputError("--save-calibration needs something to save: give --calibrate as well")
    if gains and per_input is None:
        raise InputError(f"--gains {gains[0]}: gains stand in the table of inputs: give --per-input FILE as well")
    if per_input is not None:
        writer_for(per_input)
    for path in (save, save_calibration, json, per_input, evidence):
        require_writable(path)
    allowed = parse_share(tolerance, "--tolerance")
    if sync not in SYNCS:
        raise InputError(f"--sync {sync!r}: expected {' or '.join(SYNCS)}")
    names = Names(
        model=model,
        data=data,
        weights=None if weights is None else str(weights),
        calibrate=calibrate,
        held_out=held_out,
        init=init,
        layers=layers,
        mean=mean,
        std=std,
        padding=padding,
        metadata=metadata,
        batch_size=batch_size,
        device=device,
        cuda_graph=cuda_graph,
        shard=shard,
        pool=pool,
    )
    options_of_one = {"--slices": slices, "--per-input": per_input, "--evidence": evidence}
    with shared_by(workers, options_of_one, Work(names, tuple(criteria or ()), errors, sync)) as ranks:
        measured = measure_named(
            own_device(names, ranks),
            criteria or (),
            slices=split_columns(slices),
            per_input=per_input is not None,
            gains=gains or (),
            # Tables and pictures of inputs are made in one process.
            keep_inputs=inputs and save is not None and ranks is None,
            missing=missing,
            errors=errors,
            save_calibration=save_calibration,
            ranks=ranks,
            sync=sync,
        )
    if ranks is not None and ranks.rank:
        return
    coverage, result = measured.coverage, measured.result
    # Files first: whoever reads the output may stop reading.
    if save is not None:
        coverage.save(save, inputs=inputs)
    if json is not None:
        result.write(json)
    if per_input is not None:
        coverage.per_input().write(per_input)
    if evidence is not None:
        model, suite, notes = plain_without_folders([result.model, result.suite, result.notes])
        told = replace(result, model=model, suite=suite, notes=tuple(notes))
        coverage.evidence(told, tolerance=allowed).write(evidence)
    print_result(result, by_layer=by_layer)

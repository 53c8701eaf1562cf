"""``neuralcov fuzz``: search for inputs a model gets wrong; resume, replay, shrink, show, measure, export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from neuralcov.cli import options
from neuralcov.cli.console import note, output
from neuralcov.cli.fuzz_options import (
    Against,
    AgainstWeights,
    Calls,
    Data,
    Device,
    FailOnFaults,
    Faults,
    Folder,
    Iterations,
    Minutes,
    Numbers,
    OwnModel,
    Rules,
    Shrink,
    Styles,
    Trust,
    UntilNew,
    with_settings,
)
from neuralcov.cli.fuzz_output import (
    conclude,
    draw_sheet,
    export_line,
    measure_quality,
    mended_line,
    replay_line,
    show_campaign,
    shrink_and_save,
)
from neuralcov.cli.fuzz_page import campaign_content
from neuralcov.cli.fuzz_setup import CampaignNames, absolute_name, build
from neuralcov.cli.fuzz_trust import Given, reopen
from neuralcov.cli.fuzz_workers import RayAddress, WorkerCount, crew
from neuralcov.core.counted import agreeing, counted
from neuralcov.core.errors import InputError
from neuralcov.core.files import write_json, write_text
from neuralcov.fuzz.campaign.dataset import ARRAYS, export_dataset
from neuralcov.fuzz.campaign.folder import CampaignFolder, write_errors
from neuralcov.fuzz.campaign.reader import PARTS, open_campaign
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.settings import FuzzSettings
from neuralcov.report.campaign import render_campaign
from neuralcov.report.text import show_value
from neuralcov.sources.data import parse_channels
from neuralcov.sources.models import weights_of

fuzz = typer.Typer(help="Search for inputs a model gets wrong.", no_args_is_help=True)


@fuzz.command()
@with_settings
def run(
    model: options.Model,
    data: Annotated[str, typer.Option(help="What to start from: zoo:NAME, folder:PATH, npz:PATH or module:factory.")],
    folder: Annotated[Path, typer.Option("--output", "-o", help="Where the campaign is kept.")],
    weights: options.Weights = None,
    criteria: Annotated[
        list[str] | None, typer.Option("--criterion", "-c", help="What guides, such as nlc or nc:0.75; repeat it.")
    ] = None,
    calibrate: Annotated[str | None, typer.Option(help="Training data, or a saved calibration (.ncal).")] = None,
    layers: options.Layers = None,
    seeds: Annotated[int, typer.Option(min=1, help="Inputs to start from, drawn from the data.")] = 1000,
    unsure_seeds: Annotated[
        bool,
        typer.Option(
            "--unsure-seeds",
            help="Start from those the model reads rightly with the least certainty; it is run on all of the data.",
        ),
    ] = False,
    iterations: Iterations = None,
    minutes: Minutes = None,
    faults: Faults = None,
    until_new: UntilNew = None,
    calls: Calls = None,
    mutations: Annotated[
        str | None, typer.Option(help="Names joined by commas, such as contrast,rotation,style; all usual ones else.")
    ] = None,
    styles: Annotated[
        str | None, typer.Option(help="Stylise with a folder of images, or 'shipped'; needs the data set adain.")
    ] = None,
    style_moves: Annotated[
        bool, typer.Option("--style-moves", help="Count a style as the one change that moves the origin too.")
    ] = False,
    style_side: Annotated[int, typer.Option(min=16, help="Pixels to stylise at.")] = 128,
    against: Annotated[str | None, typer.Option(help="A second model that should agree.")] = None,
    against_weights: Annotated[Path | None, typer.Option(help="Its weights.")] = None,
    mean: Annotated[str | None, typer.Option(help="Per channel, subtracted from pixels in [0, 1].")] = None,
    std: Annotated[str | None, typer.Option(help="Per channel, by which they are then divided.")] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Of texts: a file with a word per line; line i, counted from 0, is token i.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Of texts: the folder or name of one of Hugging Face.")] = None,
    initial_data: Annotated[
        str | None, typer.Option(help="With --initial given: training data, of which 1,000 are observed first.")
    ] = None,
    rules: Rules = None,
    *,
    settings: FuzzSettings,
    device: options.Device = "cpu",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Reproducible kernels only.")] = False,
    workers: WorkerCount = None,
    ray: RayAddress = None,
    shrink: Shrink = True,
    fail_on_faults: FailOnFaults = False,
) -> None:
    """Start a campaign; stop it at any time and go on with `neuralcov fuzz resume`."""
    names = CampaignNames(
        model=absolute_name(model),
        data=absolute_name(data),
        weights=None if weights is None else str(weights.resolve()),
        criteria=tuple(criteria or ["nlc"]),
        calibrate=None if calibrate is None else absolute_name(calibrate),
        layers=layers,
        seeds=seeds,
        unsure_seeds=unsure_seeds,
        mutations=() if mutations is None else tuple(name.strip() for name in mutations.split(",")),
        styles=styles if styles in (None, "shipped") else absolute_name(styles),
        style_moves=style_moves,
        style_side=style_side,
        against=None if against is None else absolute_name(against),
        against_weights=None if against_weights is None else str(against_weights.resolve()),
        mean=parse_channels(mean),
        std=parse_channels(std),
        vocabulary=None if vocabulary is None else str(vocabulary.resolve()),
        tokenizer=None if tokenizer is None else absolute_name(tokenizer),
        initial_data=None if initial_data is None else absolute_name(initial_data),
        device=device,
        deterministic=deterministic,
    )
    place = CampaignFolder(folder)
    place.require_new()
    place.make()
    prepared = build(names, settings, folder, resumed=False)
    for name, net, file in ((model, prepared.model, weights), (against, prepared.second_model, against_weights)):
        told = None if name is None or net is None else weights_of(name, net, file)[1]
        if told is not None:
            note(told)
    with _hints(folder), crew(prepared, folder, workers, ray) as helpers:
        campaign = prepared.fuzzer.run(
            iterations,
            seconds=None if minutes is None else 60 * minutes,
            faults=faults,
            until_new=until_new,
            calls=calls,
            progress=True,
            workers=helpers,
        )
    conclude(prepared, campaign, shrink, fail_on_faults)


@fuzz.command()
def resume(
    folder: Folder,
    model: OwnModel = None,
    weights: options.Weights = None,
    data: Data = None,
    styles: Styles = None,
    against: Against = None,
    against_weights: AgainstWeights = None,
    device: Device = None,
    trust: Trust = False,
    iterations: Iterations = None,
    minutes: Minutes = None,
    faults: Faults = None,
    until_new: UntilNew = None,
    calls: Calls = None,
    workers: WorkerCount = None,
    ray: RayAddress = None,
    shrink: Shrink = True,
    fail_on_faults: FailOnFaults = False,
) -> None:
    """Go on with a campaign that was stopped or killed, to its limits or to new ones counted from its start."""
    given = Given(model, weights, data, styles, against, against_weights, device, trust)
    prepared = reopen(folder, given, searching=True)
    with _hints(folder), crew(prepared, folder, workers, ray) as helpers:
        campaign = prepared.fuzzer.resume(
            iterations,
            seconds=None if minutes is None else 60 * minutes,
            faults=faults,
            until_new=until_new,
            calls=calls,
            progress=True,
            workers=helpers,
        )
    if not campaign.exact:
        note("waves since the last checkpoint came out otherwise here than logged: coverage follows the log")
    conclude(prepared, campaign, shrink, fail_on_faults)


@fuzz.command()
def replay(
    folder: Folder,
    model: OwnModel = None,
    numbers: Numbers = None,
    weights: options.Weights = None,
    data: Data = None,
    styles: Styles = None,
    against: Against = None,
    against_weights: AgainstWeights = None,
    device: Device = None,
    trust: Trust = False,
) -> None:
    """Run a model on saved faults; exit with 1 if some are still there. The weights may be those of a mended model."""
    model, chosen = _model_and_numbers(model, numbers)
    given = Given(model, weights, data, styles, against, against_weights, device, trust)
    prepared = reopen(folder, given, searching=False)
    found = prepared.fuzzer.replay(_chosen(prepared.fuzzer.load(), chosen))
    for entry in found if chosen else []:
        output().print(replay_line(entry), soft_wrap=True, highlight=False)
    still = [entry for entry in found if entry.still_there]
    again = sum(entry.reproduced for entry in found)
    rebuilt = sum(entry.rebuilt for entry in found)
    output().print(
        f"{len(still)} of {counted(len(found), 'fault')} {agreeing(len(still), 'is', 'are')} still "
        f"there, {again} of them as they were; {rebuilt} are made anew "
        f"from their origin to the last bit; {mended_line(found)}",
        soft_wrap=True,
        highlight=False,
    )
    if still:
        raise typer.Exit(1)


@fuzz.command("shrink")
def shrink_faults(
    folder: Folder,
    model: OwnModel = None,
    numbers: Numbers = None,
    weights: options.Weights = None,
    data: Data = None,
    styles: Styles = None,
    against: Against = None,
    against_weights: AgainstWeights = None,
    device: Device = None,
    trust: Trust = False,
) -> None:
    """Leave out mutations that faults do not need; what is left is saved beside the faults.

    Without numbers the sheet of pictures is drawn anew; with numbers it stays as it is, since it shows others too.
    """
    model, chosen = _model_and_numbers(model, numbers)
    given = Given(model, weights, data, styles, against, against_weights, device, trust)
    prepared = reopen(folder, given, searching=False)
    shrunk = shrink_and_save(prepared, _chosen(prepared.fuzzer.load(), chosen))
    if not chosen:
        draw_sheet(prepared, shrunk)


@fuzz.command()
def export(
    folder: Folder,
    to: Annotated[Path, typer.Option("--output", "-o", help="Where pictures go.")],
    what: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PARTS)}; repeat it. Faults by default.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many of each.")] = None,
    dataset: Annotated[
        bool, typer.Option("--dataset", help="Write faults as a data set with their true labels, to train on.")
    ] = False,
) -> None:
    """Write faults, the queue or the seeds as pictures (or text), with an index; needs no model."""
    campaign = open_campaign(folder)
    if dataset:
        if what and what != ["faults"]:
            raise InputError(f"--dataset with --what {', '.join(what)}: expected faults alone")
        count = export_dataset(campaign, to, limit=limit)
        output().print(export_line("faults", count, to / ARRAYS), soft_wrap=True, highlight=False)
        return
    for part in what or ["faults"]:
        count = campaign.export(part, to, limit=limit)
        output().print(export_line(part, count, to / part), soft_wrap=True, highlight=False)


@fuzz.command()
def show(
    folder: Folder,
    html: Annotated[
        Path | None, typer.Option(help="Write a page too: counts over time, groups of faults, before and after.")
    ] = None,
) -> None:
    """Show how a campaign stands; one that is running may be looked at too."""
    campaign = open_campaign(folder)
    show_campaign(campaign)
    if html is None:
        return
    with write_errors(html):
        write_text(html, render_campaign(campaign_content(campaign)))
    output().print(f"the page is {html}", soft_wrap=True, highlight=False)


@fuzz.command()
def quality(
    folder: Folder,
    features: Annotated[
        str | None, typer.Option(help="A network from pixels to features, such as zoo:inception, for IS and FID.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=2, help="At most so many outputs for these two.")] = None,
    device: options.Device = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there too.")] = None,
) -> None:
    """Measure what a campaign found: faults per output, classes, entropy; with --features, IS and FID to the seeds."""
    found = measure_quality(open_campaign(folder), features, limit, device)
    for name, value in found.items():
        shown = "none" if value is None else show_value(float(value)) if isinstance(value, float) else f"{value:,}"
        output().print(f"{name.replace('_', ' ')}: {shown}", highlight=False)
    if json_file is not None:
        with write_errors(json_file):
            write_json(json_file, found)


@contextmanager
def _hints(folder: Path) -> Iterator[None]:
    """Say how to go on when a person stops the campaign."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"stopped; go on with: neuralcov fuzz resume {folder} --trust")
        raise typer.Exit(130) from None


def _model_and_numbers(model: str | None, numbers: list[int] | None) -> tuple[str | None, list[int]]:
    """Tell a model from the number of a fault that stands in its place."""
    chosen = list(numbers or [])
    if model is not None and model.isdigit():
        return None, [int(model), *chosen]
    return model, chosen


def _chosen(faults: Sequence[Fault], numbers: list[int] | None) -> list[Fault]:
    if not numbers:
        return list(faults)
    for number in numbers:
        if not 0 <= number < len(faults):
            raise InputError(f"fault {number}: the campaign has {counted(len(faults), 'fault')}, numbered from 0")
    return [faults[number] for number in numbers]

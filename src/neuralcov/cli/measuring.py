"""Measure what a command line names: the work of ``measure``, which ``verify`` does once more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import distributed, nn

from neuralcov.cli import defaults
from neuralcov.cli.portable import plain_without_folders
from neuralcov.cli.workers import calibrate_once
from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import InputError
from neuralcov.core.files import is_file
from neuralcov.coverage.coverage import Coverage
from neuralcov.distributed import Ranks
from neuralcov.results import Results
from neuralcov.sources.data import NamedData, load_data, parse_channels
from neuralcov.sources.models import load_model, weights_of
from neuralcov.sources.names import criterion_from_text
from neuralcov.sources.npz import parse_padding
from neuralcov.sources.shards import Shard


@dataclass(frozen=True)
class Names:
    """Hold what to measure, as options of a command name it.

    Args:
        model: the model.
        data: the suite.
        weights: the model's weights.
        calibrate: training data, or a saved calibration.
        held_out: training data kept out of calibration: a share, or a name.
        init: data to update with first.
        layers: globs on the names of layers.
        mean: per channel.
        std: per channel.
        padding: the token behind the end of texts.
        metadata: keys of mappings that hold metadata.
        batch_size: inputs per forward pass.
        device: where the model runs.
        cuda_graph: whether to record updates as CUDA graphs; by default where that is safe and helps.
        shard: which shard of the suite, such as ``3/64``; all of it if none is named.
        pool: what is made of the tokens of an input.
    """

    model: str
    data: str
    weights: str | None = None
    calibrate: str | None = None
    held_out: str | None = None
    init: str | None = None
    layers: str | None = None
    mean: str | None = None
    std: str | None = None
    padding: str = "0"
    metadata: str | None = None
    batch_size: int = 100
    device: str = "cpu"
    cuda_graph: bool | None = None
    shard: str | None = None
    pool: str = "mean"


@dataclass(frozen=True, eq=False)
class Measured:
    """Hold a coverage that has seen its suite, and what that gave."""

    coverage: Coverage
    result: Results


def measure_named(
    names: Names,
    criteria: Sequence[str | Criterion[Any]] = (),
    *,
    slices: Sequence[str] = (),
    per_input: bool = False,
    keep_inputs: bool = False,
    gains: Sequence[str] = (),
    missing: bool = False,
    errors: bool = False,
    save_calibration: str | None = None,
    expect: Callable[[nn.Module], None] = lambda net: None,
    ranks: Ranks | None = None,
    sync: str = "end",
) -> Measured:
    """Measure a suite.

    Args:
        names: what to measure.
        criteria: by which criteria, as texts or built; the defaults if there are none.
        slices: columns of metadata.
        per_input: whether to keep a table of the inputs.
        keep_inputs: whether to keep what reports show of inputs.
        gains: criteria, as texts, whose gains the table tells.
        missing: whether to name neurons of which nothing is covered.
        errors: whether criteria that tick off cells keep their standard errors too.
        save_calibration: where to write what calibration learnt.
        expect: what to check of the model before anything runs.
        ranks: the processes that share the suite, each of which makes this call; all end with the whole.
        sync: how they do, as for ``Coverage.assess``.
    """
    shard = None if names.shard is None else Shard.parse(names.shard)
    shared: dict[str, Any] = {"progress": None if ranks is None or not ranks.rank else False}
    if ranks is not None:
        shared |= {"group": distributed.group.WORLD, "sync": sync}

    def part(loader: Iterable[Any]) -> Iterable[Any]:
        mine = loader if shard is None else shard.of(loader)
        return mine if ranks is None else Shard(ranks.rank, ranks.size).of(mine)

    weights = None if names.weights is None else Path(names.weights)
    net = load_model(names.model, weights, names.device)
    expect(net)
    origin, told = weights_of(names.model, net, weights)
    mean, std = parse_channels(names.mean), parse_channels(names.std)
    read = partial(load_data, batch_size=names.batch_size, mean=mean, std=std, padding=parse_padding(names.padding))
    calibrate, metadata = names.calibrate, split_columns(names.metadata)
    saved = calibrate is not None and is_file(calibrate)
    training = None if calibrate is None or saved else read(calibrate, split="train")
    apart = _held_out(names, read)
    suite = read(names.data)
    if criteria:
        # After the model, whose module may define criteria of its own.
        chosen = [criterion_from_text(each) if isinstance(each, str) else each for each in criteria]
    elif calibrate is None:
        chosen = defaults.without_training_data()
    else:
        source = training or suite
        found, batches = defaults.layers_of(net, names.layers, source.loader, metadata=metadata)
        chosen, source = defaults.with_training_data(found), replace(source, loader=batches)
        training, suite = (None, source) if training is None else (source, suite)
    coverage = Coverage(
        net,
        defaults.with_errors(chosen) if errors else chosen,
        layers=names.layers,
        pool=names.pool,
        cuda_graph="auto" if names.cuda_graph is None else names.cuda_graph,
        preprocessing={"mean": mean, "std": std} if mean or std else None,
        metadata=metadata,
    )
    notes = [told]
    if calibrate is not None:
        if training is None:
            coverage.calibrate(calibrate)
        else:
            notes.append(training.note)
            if isinstance(apart, NamedData):
                notes.append(apart.note)
            held_out = apart.loader if isinstance(apart, NamedData) else apart
            calibrate_once(coverage, training.loader, held_out, ranks)
        if save_calibration is not None and (ranks is None or not ranks.rank):
            coverage.save_calibration(save_calibration)
    before, earlier = None, 0
    if names.init is not None:
        first = read(names.init, split="train")
        notes.append(first.note)
        coverage.assess(part(first.loader), **shared)
        before, earlier = coverage.values(), coverage.inputs
    notes.append(suite.note)
    looks: dict[str, Any] = {"slices": list(slices), "per_input": per_input, "keep_inputs": keep_inputs}
    looks["gains"] = [criterion_from_text(each).name for each in gains]
    coverage.assess(part(suite.loader), **looks, **shared)
    # Files are sent to others, whom the folders of this machine do not concern.
    told_names, command = plain_without_folders([asdict(names), sys.argv[1:]])
    coverage.note_procedure(batch_size=names.batch_size, names=told_names, command=["neuralcov", *command])
    result = coverage.results(
        model=names.model,
        suite=suite.name,
        inputs=coverage.inputs - earlier,
        before=before,
        weights=origin,
        notes=list(dict.fromkeys(sentence for sentence in notes if sentence is not None)),
        missing=missing,
    )
    return Measured(coverage, result)


def _held_out(names: Names, read: Callable[..., NamedData]) -> float | NamedData | None:
    """Return the share of training data to hold out, or the data that are."""
    if names.held_out is None:
        return None
    if names.calibrate is None or Path(names.calibrate).is_file():
        raise InputError("--held-out goes with --calibrate DATA; a saved calibration has what was held out then")
    if is_share(names.held_out):
        return parse_share(names.held_out, "--held-out")
    return read(names.held_out, split="train")


def is_share(text: str) -> bool:
    """Return whether an option that takes a share or a name is a share.

    >>> is_share("0.1"), is_share("10%"), is_share("npz:apart.npz")
    (True, True, False)
    """
    return text.strip().removesuffix("%").replace(".", "", 1).isdecimal()


def split_columns(text: str | None) -> list[str]:
    """Return the names in a text that joins them by commas."""
    return [] if text is None else [part.strip() for part in text.split(",") if part.strip()]


def parse_share(text: str, option: str) -> float:
    """Read a share from 0 to 1, or in per cent.

    >>> parse_share("1%", "--tolerance"), parse_share("0.5", "--tolerance")
    (0.01, 0.5)
    """
    plain = text.strip()
    try:
        share = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError as error:
        raise InputError(f"{option} {text!r}: expected a share, such as 1% or 0.01") from error
    if not 0 <= share < 1:
        raise InputError(f"{option} {text!r}: expected a share from 0 to 1, such as 1% or 0.01")
    return share

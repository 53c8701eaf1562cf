"""From the words of a fuzz command to a fuzzer, and back again from a campaign's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.core.criterion import criterion_from_text
from neuralcov.core.errors import CampaignError, InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.criteria import NC
from neuralcov.fuzz import Fuzzer, Mutation, Stylise, image_mutations, style_folder, text_mutations
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.sources.models import load_model
from neuralcov.sources.names import split_call
from neuralcov.sources.samples import Samples
from neuralcov.sources.whole import choose, load_samples

_CALIBRATION = "calibration.ncal"
# Sources whose names are paths.
_PATHS = ("npz", "folder", "hf")


@dataclass(frozen=True)
class Order:
    """What a person asked for, as plain data: ``resume`` and ``replay`` read it back."""

    model: str
    data: str
    weights: str | None = None
    criteria: tuple[str, ...] = ("nlc",)
    calibrate: str | None = None
    layers: str | None = None
    seeds: int | None = 1000
    mutations: tuple[str, ...] = ()
    styles: str | None = None
    style_moves: bool = False
    style_side: int = 128
    against: str | None = None
    against_weights: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    guidance: str = "coverage"
    wave: int = 256
    tries: int = 50
    batch: int = 1000
    seed: int = 0
    min_gain: float = 0.0
    schedule: str = "uniform"
    alpha: float = 0.2
    beta: float = 0.4
    time_limit: float | None = None
    checkpoint: float = 60.0
    pictures: int | None = 20
    device: str = "cpu"
    deterministic: bool = False


@dataclass(frozen=True, eq=False)
class PreparedFuzzer:
    """A fuzzer ready to run, and the seeds it was built from."""

    fuzzer: Fuzzer
    samples: Samples
    model: nn.Module
    rival: nn.Module | None = None


def absolute_name(text: str) -> str:
    """What a person named, with its path made whole, so that a campaign can go on from another folder.

    >>> absolute_name("demo:digits"), absolute_name("npz:/data/digits.npz")
    ('demo:digits', 'npz:/data/digits.npz')
    >>> absolute_name("zoo:cifar10(folder='/data'):train")
    "zoo:cifar10(folder='/data'):train"
    """
    source, colon, rest = text.partition(":")
    if source not in _PATHS and "folder=" in rest:
        call, bracket, part = rest.rpartition(")")
        name, arguments = split_call(call + bracket)
        arguments["folder"] = str(Path(arguments["folder"]).resolve())
        return f"{source}:{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())}){part}"
    if source in _PATHS and colon:
        path, bracket, arguments_of_model = (rest, "", "") if Path(rest).exists() else rest.partition("(")
        return f"{source}:{_whole(path)}{bracket}{arguments_of_model}"
    return _whole(text)


def _whole(path: str) -> str:
    """A path that is there, from the root; anything else as it is."""
    return str(Path(path).resolve()) if Path(path).exists() else path


def order_of(folder: Path) -> Order:
    """What the campaign in a folder was started with."""
    notes = CampaignFolder(folder).config()["notes"]
    if "order" not in notes:
        raise CampaignError(
            f"{folder}: this campaign was started from Python: build the same Fuzzer there and call its resume(), "
            "replay() or shrink()"
        )
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in notes["order"].items()
    }
    return Order(**known)


def build(
    order: Order, folder: Path, *, resumed: bool, searching: bool = True, kept: Samples | None = None
) -> PreparedFuzzer:
    """The fuzzer an order describes. A campaign that goes on reads the calibration from its folder.

    Args:
        order: what was asked for.
        folder: the campaign's.
        resumed: whether the campaign has begun.
        searching: whether coverage will guide; faults are looked at without, on a model with any weights.
        kept: the seeds, where they do not come from the data that the order names.
    """
    if order.deterministic:
        torch.use_deterministic_algorithms(True)
    model = load_model(order.model, _path(order.weights), order.device)
    if searching:
        coverage = Coverage(model, [criterion_from_text(text) for text in order.criteria], layers=order.layers)
    else:
        coverage = Coverage(model, [NC()], layers=order.layers)
    if searching and order.guidance == "coverage":
        _calibrate(coverage, order, folder, resumed)
    samples = kept
    if samples is None:
        samples = choose(load_samples(order.data, mean=order.mean, std=order.std), order.seeds, order.seed)
    rival = None
    if order.against is not None:
        rival = load_model(order.against, _path(order.against_weights), order.device)
    fuzzer = Fuzzer(
        coverage,
        samples.inputs,
        samples.labels,
        mutations=_mutations(order, samples, model),
        preprocess=_preprocess(samples),
        folder=folder,
        guidance=order.guidance,
        wave=order.wave,
        tries=order.tries,
        batch=order.batch,
        seed=order.seed,
        min_gain=order.min_gain,
        schedule=order.schedule,
        alpha=order.alpha,
        beta=order.beta,
        levels=samples.levels,
        words=samples.words,
        against=rival,
        time_limit=order.time_limit,
        checkpoint=order.checkpoint,
        pictures=order.pictures,
        notes={
            "order": asdict(order),
            "classes": list(samples.classes),
            "preparation": {
                "levels": samples.levels,
                "mean": list(samples.mean),
                "std": list(samples.std),
                "texts": samples.lengths is not None,
            },
        },
    )
    return PreparedFuzzer(fuzzer, samples, model, rival)


def _calibrate(coverage: Coverage, order: Order, folder: Path, resumed: bool) -> None:
    kept = folder / _CALIBRATION
    if resumed and kept.is_file():
        coverage.calibrate(kept)
    elif order.calibrate is not None:
        if Path(order.calibrate).is_file():
            coverage.calibrate(order.calibrate)
        else:
            training = load_samples(order.calibrate, mean=order.mean, std=order.std, split="train")
            padded = training.lengths is not None
            coverage.calibrate(training.named_batches(order.batch) if padded else training.batches(order.batch))
        # Learnt again, on other hardware even from the same data, it would not be the same to the bit.
        coverage.save_calibration(kept)


def _preprocess(samples: Samples) -> Callable[[Tensor], Any]:
    if samples.lengths is None:
        return samples.prepare

    def tell_lengths(tokens: Tensor) -> dict[str, Tensor]:
        return {"tokens": tokens, "lengths": (tokens != 0).sum(1).clamp(min=1)}

    return tell_lengths


def _mutations(order: Order, samples: Samples, model: nn.Module) -> list[Mutation]:
    if samples.lengths is not None:
        found = text_mutations(samples.words, _word_vectors(model, samples.words))
    elif samples.inputs.dim() != 4:
        kind = "tokens" if not samples.inputs.is_floating_point() and samples.inputs.dim() == 2 else "numbers"
        raise InputError(
            f"data {order.data!r}: inputs of shape {tuple(samples.inputs.shape)} are {kind}; this command mutates "
            "images (inputs, channels, height, width) and zoo:imdb; in Python, nc.Fuzzer(..., mutations=) takes others"
        )
    else:
        found = image_mutations(min(samples.inputs.shape[2:]))
        if order.styles is not None or "style" in order.mutations:
            found.append(_stylise(order))
    if not order.mutations:
        return found
    by_name = {mutation.name: mutation for mutation in found}
    for name in order.mutations:
        if name not in by_name:
            raise InputError(f"mutation {name!r}: for this data there are {', '.join(by_name)}")
    return [by_name[name] for name in order.mutations]


def _stylise(order: Order) -> Stylise:
    network: Any = load_model("zoo:adain", None, order.device)
    styles = style_folder(None if order.styles in (None, "shipped") else order.styles)
    return Stylise(network.encoder, network.decoder, styles, side=order.style_side, geometric=order.style_moves)


def _word_vectors(model: nn.Module, vocabulary: tuple[str, ...] | None) -> Tensor | None:
    """The model's own embedding, if it is one of the whole vocabulary."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    if vocabulary is None or not tables or len(tables[0]) != len(vocabulary):
        return None
    return tables[0].detach()


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)

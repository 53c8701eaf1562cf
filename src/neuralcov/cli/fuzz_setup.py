"""Build a fuzzer from the words of a command, or from what a campaign's folder keeps of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.cli.fuzz_seeds import least_sure
from neuralcov.core.errors import CampaignError, InputError
from neuralcov.core.files import is_file
from neuralcov.coverage.coverage import Coverage
from neuralcov.criteria import NC
from neuralcov.fuzz import Fuzzer, FuzzSettings, Mutation, Stylise, image_mutations, style_folder, text_mutations
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.sources.data import choose, load_data, load_samples
from neuralcov.sources.models import load_model
from neuralcov.sources.names import criterion_from_text, split_call
from neuralcov.sources.samples import Samples
from neuralcov.sources.texts import holds_texts, text_samples

CALIBRATION = "calibration.ncal"
# Sources whose names are paths.
_PATHS = ("npz", "folder", "hf")


@dataclass(frozen=True)
class CampaignNames:
    """Hold what a person named on the command line, as plain data: ``resume`` and ``replay`` read it back.

    Settings of the search are not among it; see ``FuzzSettings``.
    """

    model: str
    data: str
    weights: str | None = None
    criteria: tuple[str, ...] = ("nlc",)
    calibrate: str | None = None
    layers: str | None = None
    seeds: int | None = 1000
    unsure_seeds: bool = False
    mutations: tuple[str, ...] = ()
    styles: str | None = None
    style_moves: bool = False
    style_side: int = 128
    against: str | None = None
    against_weights: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    vocabulary: str | None = None
    tokenizer: str | None = None
    initial_data: str | None = None
    device: str = "cpu"
    deterministic: bool = False


@dataclass(frozen=True, eq=False)
class PreparedFuzzer:
    """Hold a fuzzer ready to run, the seeds and names it was built from, and its models."""

    fuzzer: Fuzzer
    samples: Samples
    names: CampaignNames
    model: nn.Module
    second_model: nn.Module | None = None


def absolute_name(text: str) -> str:
    """Return what a person named, with its path made whole, so that a campaign can go on from another folder.

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
    """Return a path that is there, from the root; anything else as it is."""
    return str(Path(path).resolve()) if Path(path).exists() else path


def names_of(folder: Path) -> CampaignNames:
    """Return what the campaign in a folder was started with."""
    notes = CampaignFolder(folder).config().get("notes", {})
    if "order" not in notes:
        raise CampaignError(
            f"{folder}: this campaign was started from Python: build the same Fuzzer there and call its resume(), "
            "replay() or shrink()"
        )
    # Campaigns of schema 1 have settings among the names, which are read from elsewhere.
    names = {entry.name for entry in fields(CampaignNames)}
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in notes["order"].items()
        if name in names
    }
    try:
        found = CampaignNames(**known)
    except TypeError as error:
        raise CampaignError(f"{folder}/config.json: damaged ({error}); take it from a copy") from error
    wrong = next(
        (
            name
            for name in ("model", "data", "weights", "calibrate", "styles", "against", "device", "layers")
            if not isinstance(getattr(found, name), (str, type(None)))
        ),
        None,
    )
    if wrong is not None or not all(isinstance(text, str) for text in (*found.criteria, *found.mutations)):
        raise CampaignError(f"{folder}/config.json: damaged ({wrong or 'criteria'} is no text); take it from a copy")
    return found


def build(
    names: CampaignNames,
    settings: FuzzSettings,
    folder: Path,
    *,
    resumed: bool,
    searching: bool = True,
    kept: Samples | None = None,
) -> PreparedFuzzer:
    """Build the fuzzer that was asked for. A campaign that goes on reads the calibration from its folder.

    Args:
        names: what was named.
        settings: how to search.
        folder: the campaign's.
        resumed: whether the campaign has begun.
        searching: whether coverage will guide; faults are looked at without, on a model with any weights.
        kept: the seeds, where they do not come from the data that was named.
    """
    if names.deterministic:
        torch.use_deterministic_algorithms(True)
    model = load_model(names.model, _path(names.weights), names.device)
    if searching:
        coverage = Coverage(model, [criterion_from_text(text) for text in names.criteria], layers=names.layers)
    else:
        coverage = Coverage(model, [NC()], layers=names.layers)
    if searching and settings.uses_coverage:
        _calibrate(coverage, names, settings.batch, folder, resumed)
        if not resumed:
            _observe_first(coverage, names, settings)
    samples = kept
    if samples is None:
        samples = _seeds(names, model, settings, resumed)
    second_model = None
    if names.against is not None:
        second_model = load_model(names.against, _path(names.against_weights), names.device)
    fuzzer = Fuzzer(
        coverage,
        samples.inputs,
        samples.labels,
        mutations=_mutations(names, samples, model, settings),
        preprocess=_preprocess(samples),
        folder=folder,
        settings=settings,
        levels=samples.levels,
        padding=0 if samples.text_call is None else samples.text_call.padding,
        words=samples.words,
        against=second_model,
        notes={
            "order": asdict(names),
            "classes": list(samples.classes),
            "preparation": {
                "levels": samples.levels,
                "mean": list(samples.mean),
                "std": list(samples.std),
                "texts": samples.lengths is not None,
                **({} if samples.text_call is None else {"text call": samples.text_call.to_json()}),
            },
        },
    )
    return PreparedFuzzer(fuzzer, samples, names, model, second_model)


def _seeds(names: CampaignNames, model: nn.Module, settings: FuzzSettings, resumed: bool) -> Samples:
    if not names.unsure_seeds:
        return choose(_samples(names, model), names.seeds, settings.seed)
    if resumed:
        # Other weights would choose other seeds.
        raise InputError("the folder holds seeds that the model chose, which cannot be chosen anew: leave out --data")
    samples = _samples(names, model)
    return least_sure(samples, names.seeds, model, _preprocess(samples), settings.batch, names.device)


def _calibrate(coverage: Coverage, names: CampaignNames, batch: int, folder: Path, resumed: bool) -> None:
    kept = folder / CALIBRATION
    if resumed and kept.is_file():
        coverage.calibrate(kept)
    elif names.calibrate is not None:
        if is_file(names.calibrate):
            coverage.calibrate(names.calibrate)
        else:
            training = load_samples(names.calibrate, mean=names.mean, std=names.std, split="train")
            padded = training.lengths is not None
            coverage.calibrate(training.named_batches(batch) if padded else training.batches(batch))
        # Learnt again, on other hardware even from the same data, it would not be the same to the bit.
        coverage.save_calibration(kept)


# What the published rules observe before the seeds: so many training inputs, in batches of this size.
_FIRST_INPUTS, _FIRST_BATCH = 1000, 50


def _observe_first(coverage: Coverage, names: CampaignNames, settings: FuzzSettings) -> None:
    """Have coverage observe training data where the seeds are not what it begins with."""
    if settings.initial == "seeds":
        return
    if names.initial_data is None:
        raise InputError(
            "initial='given' (as with --rules published): say --initial-data DATA, the training data that coverage "
            "observes first, or --initial seeds"
        )
    first = load_samples(names.initial_data, mean=names.mean, std=names.std, split="train")
    some = choose(first, _FIRST_INPUTS, settings.seed)
    padded = some.lengths is not None
    coverage.assess(some.named_batches(_FIRST_BATCH) if padded else some.batches(_FIRST_BATCH), progress=False)


def _samples(names: CampaignNames, model: nn.Module) -> Samples:
    """Read the data: images, texts of an offered data set, or texts of one's own."""
    texts = names.vocabulary is not None or names.tokenizer is not None
    loader = load_data(names.data, batch_size=1000, split="test").loader
    if not texts and (hasattr(loader, "samples") or not holds_texts(loader)):
        return load_samples(names.data, mean=names.mean, std=names.std)
    return text_samples(names.data, loader, model, vocabulary=names.vocabulary, tokenizer=names.tokenizer)


def _preprocess(samples: Samples) -> Callable[[Tensor], Any]:
    if samples.text_call is not None:
        return samples.text_call
    if samples.lengths is None:
        return samples.prepare

    def tell_lengths(tokens: Tensor) -> dict[str, Tensor]:
        return {"tokens": tokens, "lengths": count_words(tokens)}

    return tell_lengths


def count_words(tokens: Tensor) -> Tensor:
    """Return the number of words of each text, at least 1; 0 is padding."""
    return (tokens != 0).sum(1).clamp(min=1)


def _mutations(names: CampaignNames, samples: Samples, model: nn.Module, settings: FuzzSettings) -> list[Mutation]:
    call = samples.text_call
    if call is not None:
        vectors = _word_vectors(model, samples.words)
        found = text_mutations(samples.words, vectors, padding=call.padding, unknown=call.unknown)
    elif samples.lengths is not None:
        found = text_mutations(samples.words, _word_vectors(model, samples.words))
    elif samples.inputs.dim() != 4:
        kind = "tokens" if not samples.inputs.is_floating_point() and samples.inputs.dim() == 2 else "numbers"
        raise InputError(
            f"data {names.data!r}: inputs of shape {tuple(samples.inputs.shape)} are {kind}; this command mutates "
            "images (inputs, channels, height, width) and texts; in Python, nc.Fuzzer(..., mutations=) takes others"
        )
    else:
        side = min(samples.inputs.shape[2:])
        found = image_mutations(side, identities=settings.identities, border=settings.border)
        if names.styles is not None or "style" in names.mutations:
            found.append(_stylise(names))
    if not names.mutations:
        return found
    by_name = {mutation.name: mutation for mutation in found}
    for name in names.mutations:
        if name not in by_name:
            raise InputError(f"mutation {name!r}: for this data there are {', '.join(by_name)}")
    return [by_name[name] for name in names.mutations]


def _stylise(names: CampaignNames) -> Stylise:
    network: Any = load_model("zoo:adain", None, names.device)
    styles = style_folder(None if names.styles in (None, "shipped") else names.styles)
    return Stylise(network.encoder, network.decoder, styles, side=names.style_side, geometric=names.style_moves)


def _word_vectors(model: nn.Module, vocabulary: tuple[str, ...] | None) -> Tensor | None:
    """Return the model's own embedding, if it is one of the whole vocabulary."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    if vocabulary is None or not tables or len(tables[0]) != len(vocabulary):
        return None
    return tables[0].detach()


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)

"""Go on with a campaign: what a person names on the command line, what its folder may be believed, and what not.

A folder that somebody sent may name anything, and building a model or reading data calls what is named. So names that
stand in a folder are used only where a person says ``--trust``; numbers and arrays that lie there are used as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from neuralcov.cli.console import note
from neuralcov.cli.fuzz_setup import CampaignNames, PreparedFuzzer, absolute_name, build, count_words, names_of
from neuralcov.core.errors import CampaignError, InputError
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.settings import FuzzSettings
from neuralcov.sources.models import weights_of
from neuralcov.sources.samples import Samples
from neuralcov.sources.text_call import TextCall


@dataclass(frozen=True)
class Given:
    """Hold what a person named; ``None`` is left to the folder.

    Args:
        model: the model.
        weights: its weights; not those of the folder if the model is named.
        data: the data that the seeds came from.
        styles: the folder of styles.
        against: the second model.
        against_weights: its weights.
        device: where models run.
        trust: whether names in the folder may be used.
    """

    model: str | None = None
    weights: Path | None = None
    data: str | None = None
    styles: str | None = None
    against: str | None = None
    against_weights: Path | None = None
    device: str | None = None
    trust: bool = False


def reopen(folder: Path, given: Given, *, searching: bool) -> PreparedFuzzer:
    """Build the fuzzer of a campaign that has begun.

    Args:
        folder: the campaign's.
        given: what a person named.
        searching: whether it is to go on, which needs the weights it had; looking at faults does not.
    """
    stored, settings = names_of(folder), CampaignFolder(folder).settings()
    names = names_with(stored, given, folder)
    if searching:
        require_training_data(names, settings, folder, given.trust)
    kept = None if given.data is not None else stored_seeds(folder)
    prepared = build(names, settings, folder, resumed=True, searching=searching, kept=kept)
    origin, told = weights_of(names.model, prepared.model, None if names.weights is None else Path(names.weights))
    if not searching:
        require_some_weights(names, stored, origin)
        if told is not None:
            note(told)
    return prepared


def names_with(names: CampaignNames, given: Given, folder: Path) -> CampaignNames:
    """Return what a person named, and from the folder what they did not name.

    Refuses what only the folder names, unless that is trusted.
    """
    model = _chosen("model", given.model, names.model, "on the command line", given.trust)
    against = _chosen("second model", given.against, names.against, "as --against MODEL", given.trust)
    styles = names.styles
    if styles not in (None, "shipped"):
        styles = _chosen("styles", given.styles, styles, "as --styles FOLDER", given.trust)
    data = names.data
    if given.data is not None:
        data = absolute_name(given.data)
    elif not given.trust and stored_seeds(folder) is None:
        _refuse("data", data, "as --data DATA")
    assert model is not None
    return replace(
        names,
        model=absolute_name(model),
        weights=_weights(given.weights, names.weights, given.model),
        data=data,
        styles=styles,
        against=None if against is None else absolute_name(against),
        against_weights=_weights(given.against_weights, names.against_weights, given.against),
        device=names.device if given.device is None else given.device,
    )


def require_training_data(names: CampaignNames, settings: FuzzSettings, folder: Path, trust: bool) -> None:
    """Refuse to learn again from training data that only the folder names."""
    missing = names.calibrate is not None and not (folder / "calibration.ncal").is_file()
    if missing and not trust and settings.uses_coverage:
        raise CampaignError(
            f"{folder}: calibration.ncal is missing, and the folder names the training data {names.calibrate}; restore "
            "the file from a copy, or pass --trust to use the name in the folder"
        )


def require_some_weights(names: CampaignNames, stored: CampaignNames, origin: str) -> None:
    """Refuse random weights where the campaign had trained ones: every fault would seem mended."""
    if origin == "random" and stored.weights is not None:
        raise InputError(
            f"{names.model} has random weights here and the campaign ran with {stored.weights}; pass --weights FILE: "
            "these, or those of another version of the model"
        )


def stored_seeds(folder: Path) -> Samples | None:
    """Return the seeds of a campaign from its folder alone; ``None`` if it does not tell how the model takes them."""
    place = CampaignFolder(folder)
    notes = place.config().get("notes", {})
    told = notes.get("preparation")
    if told is None:
        return None
    arrays = place.seeds()
    try:
        inputs = torch.from_numpy(arrays["inputs"].copy())
        return Samples(
            str(folder),
            inputs,
            torch.from_numpy(arrays["labels"].copy()),
            tuple(map(str, notes["classes"])),
            levels=int(told["levels"]),
            mean=tuple(map(float, told["mean"])),
            std=tuple(map(float, told["std"])),
            lengths=count_words(inputs) if told["texts"] else None,
            words=_stored_words(folder),
            text_call=None if told.get("text call") is None else TextCall.from_json(told["text call"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CampaignError(f"{folder}/config.json: how inputs are prepared cannot be read ({error})") from error


def _stored_words(folder: Path) -> tuple[str, ...] | None:
    path = folder / "words.txt"
    return tuple(path.read_text(encoding="utf-8").split("\n")) if path.is_file() else None


def _chosen(what: str, given: str | None, stored: str | None, how: str, trust: bool) -> str | None:
    if given is None and stored is not None and not trust:
        _refuse(what, stored, how)
    return stored if given is None else given


def _refuse(what: str, stored: str, how: str) -> None:
    raise InputError(f"this folder names the {what} {stored}; give it {how}, or --trust to use the name in the folder")


def _weights(given: Path | None, stored: str | None, model: str | None) -> str | None:
    if given is not None:
        return str(given.resolve())
    # A model that a person names comes with the weights that they name.
    return stored if model is None else None

"""How good the finds of a campaign are: read from its folder, measured and told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.fuzz.campaign.reader import StoredCampaign
from neuralcov.fuzz.faults.quality import classes_reached, naturalness, scaled_entropy
from neuralcov.fuzz.formats import Pixels
from neuralcov.sources.models import load_model


def measures(archive: StoredCampaign, features: str | None, limit: int | None, device: str) -> dict[str, Any]:
    """Faults per output, classes and entropy; with a network for features, also Inception Score and Fréchet distance.

    A mutant that breaks the model (NaN, an exception, a time-out) is a fault but no output, since it is not kept:
    "faults / outputs" is the share of the outputs that are faults, and leaves it out.

    Args:
        archive: the campaign.
        features: a network from pixels in [0, 1] to features, as on the command line; ``zoo:inception`` is enlarged to.
        limit: at most so many outputs, spread over the campaign.
        device: where the network runs.
    """
    among = sum(fault.entry is not None for fault in archive.faults)
    reached = [fault.after for fault in archive.faults if fault.after is not None]
    outputs = archive.book.tally.kept
    found: dict[str, Any] = {
        "outputs": outputs,
        "faults": len(archive.faults),
        "faults among outputs": among,
        "faults / outputs": among / outputs if outputs else None,
        "classes reached": classes_reached(reached),
        "scaled entropy": scaled_entropy(reached),
    }
    if features is None:
        return found
    if not isinstance(archive.space, Pixels):
        raise InputError("Inception Score and Fréchet distance are of pictures: this campaign is over texts")
    network, corpus = _features(features, device), archive.book.corpus
    rows = torch.arange(corpus.roots, len(corpus))
    if limit is not None and limit < len(rows):
        rows = rows[torch.linspace(0, len(rows) - 1, limit).long()]
    images = archive.space.decode(corpus.inputs(rows.numpy())).to(device)
    seeds = archive.space.decode(corpus.inputs(slice(0, corpus.roots))).to(device)
    return found | naturalness(images, seeds, network).to_json()


def _features(text: str, device: str) -> Callable[[Tensor], Tensor]:
    model: Any = load_model(text, None, device)
    # A network that reads pixels of any size by itself, as zoo:inception does, wants them in colour.
    if not hasattr(model, "of_pixels"):
        return model  # type: ignore[no-any-return]

    def in_colour(pixels: Tensor) -> Tensor:
        return model.of_pixels(pixels.expand(-1, 3, -1, -1))  # type: ignore[no-any-return]

    return in_colour

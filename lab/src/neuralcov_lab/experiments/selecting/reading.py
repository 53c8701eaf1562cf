"""Features of texts in the published sentence encoder: another network's, by which kinds of faults are told apart."""

from __future__ import annotations

import numpy as np
import torch

from neuralcov.core.files import atomic_write
from neuralcov_lab import zoo
from neuralcov_lab.data.pieces import Pieces
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.named_subjects import TEXTS
from neuralcov_lab.experiments.selecting.meter import KEPT
from neuralcov_lab.experiments.selecting.named import subject_of
from neuralcov_lab.experiments.selecting.sentences import Encoder, in_pieces
from neuralcov_lab.experiments.selecting.shifts import NOMINAL, STRENGTHS, shifted
from neuralcov_lab.fetching.cache import cache_folder, require

SENTENCES = "sentence-encoder"
# Half of what the encoder takes, in half of the time: what a text is about shows early.
_STEPS = 64


def read_features(context: ExperimentContext, name: str) -> dict[str, np.ndarray]:
    """Return the features of every test text of a subject, by shift, from the cache where they lie there.

    They are the embeddings along the directions in which those of the plain test texts vary most.
    """
    folder = cache_folder() / "select"
    numbers = f"{_STEPS}-{context.scale.test}-{context.scale.reviews}-{context.seed}"
    path = folder / f"{name}.{SENTENCES}.{numbers}.npz"
    if not path.is_file():
        found = _read(context, name)
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            np.savez_compressed(file, allow_pickle=False, **found)
    with np.load(path, allow_pickle=False) as kept:
        return {shift: kept[shift] for shift in STRENGTHS}


def _read(context: ExperimentContext, name: str) -> dict[str, np.ndarray]:
    test = subject_of(context, name).test
    encoder = Encoder(zoo.sentence_encoder()).to(context.device).eval()
    pieces = Pieces.read(require(SENTENCES) / "vocab.json")
    given = {
        shift: encoder.embedded(in_pieces(shifted(context, TEXTS, test, strength), pieces, _STEPS))
        for shift, strength in STRENGTHS.items()
    }
    mean = given[NOMINAL].mean(0)
    axes = torch.linalg.svd(given[NOMINAL] - mean, full_matrices=False).Vh[:KEPT].T
    return {shift: ((own - mean) @ axes).half().cpu().numpy() for shift, own in given.items()}

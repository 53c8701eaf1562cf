"""Do texts that are unlike all known ones stand first, where the states of a published sentence encoder rank them?"""

from __future__ import annotations

from typing import Any

import neuralcov as nc
from neuralcov_lab import zoo
from neuralcov_lab.data.pieces import Pieces
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.named_subjects import TEXTS
from neuralcov_lab.experiments.selecting.sentences import in_pieces
from neuralcov_lab.experiments.selecting.shifts import shifted
from neuralcov_lab.experiments.subjects import some_samples
from neuralcov_lab.fetching.cache import require

FIRST = (50, 100, 200)
_BATCH, _ROWS, _REPLACED = 100, 229, 2


def strangers(context: ExperimentContext, known: int, usual: int, strange: int) -> dict[str, Any]:
    """Return how many strange texts stand among the first, of film reviews among posts, and of posts with other words.

    Args:
        context: device and seed.
        known: training posts that texts are compared with.
        usual: test posts in the pool.
        strange: texts in the pool that are none, or no more.
    """
    pieces = Pieces.read(require("sentence-encoder") / "vocab.json")
    encoder = zoo.sentence_encoder().to(context.device)
    posts = zoo.data("newsgroups", "test")
    reference = some_samples(context, zoo.data("newsgroups", "train"), known, _ROWS, 0)
    plain = some_samples(context, posts, usual, _ROWS, 1)
    odd = {
        "film reviews": some_samples(context, zoo.data("imdb", "test"), strange, _ROWS, 2),
        "words replaced": shifted(context, TEXTS, some_samples(context, posts, strange, _ROWS, 3), _REPLACED),
    }
    coverage = nc.Coverage(encoder, [nc.MDSC(by=None), nc.LCC()])
    found = {}
    for name, others in odd.items():
        pool = [batch for each in (plain, others) for batch in in_pieces(each, pieces).named_batches(_BATCH)]
        with quiet():
            queue = nc.rank(
                coverage, pool, training=in_pieces(reference, pieces).named_batches(_BATCH), states=True, progress=False
            )
        places = queue.positions
        found[name] = {str(first): sum(place >= len(plain) for place in places[:first]) for first in FIRST}
    return {"strangers": found, "pool": usual + strange, "strange": strange}

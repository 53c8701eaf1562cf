"""Texts whose sentence embeddings a classifier misreads, ranked by hidden states of the encoder before it answers.

The encoder is a published one that was not trained here. A logistic regression on its embeddings of training texts is
the task that follows; its mistakes on test texts are the faults. Ranked is by the encoder's states alone, as the
library ranks prompts: it knows neither the classifier nor what it says. DeepGini, which reads the answers, stands
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

import neuralcov as nc
from neuralcov.rank.collecting import SCORES_OF_STATES, Gathered, Settings, gather
from neuralcov.rank.columns import Names
from neuralcov.rank.rank import queue_of
from neuralcov.rank.scorers import Scorers
from neuralcov.rank.scores import confidence
from neuralcov.sources.samples import Samples
from neuralcov_lab import zoo
from neuralcov_lab.data.pieces import PADDING, Pieces
from neuralcov_lab.data.vocabulary import UNKNOWN
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.named_subjects import TEXTS
from neuralcov_lab.experiments.selecting.clotho import clotho_order
from neuralcov_lab.experiments.selecting.figures import figures
from neuralcov_lab.experiments.selecting.judging import CLOTHO, LEARNT, Figures
from neuralcov_lab.experiments.selecting.meter import KEPT, pool_rows
from neuralcov_lab.experiments.selecting.orders import GINI, PROMPTS
from neuralcov_lab.experiments.selecting.shifts import STRENGTHS, shifted
from neuralcov_lab.experiments.subjects import TEST_ROWS, TRAIN_ROWS, some_samples
from neuralcov_lab.fetching.cache import require
from neuralcov_lab.networks.sentence_encoder import STEPS

# Scores of states that are shown alone, by the names that they have in the field.
ALONE = {"MDSA": "mdsc", "LSA": "lsc", "LCC rarity": "rarity"}
_BATCH = 100
# Of the logistic regression, not tuned.
_INVERSE_RIDGE = 10.0
_DIGITS = 5


def sentences(context: ExperimentContext, data: str, pools: int, labels: int) -> dict[str, Any]:
    """Return, for plain and shifted test texts, the figures of every order in each of many random half pools.

    Args:
        context: scale, device and seed.
        data: of the zoo, texts with classes.
        pools: how many half pools.
        labels: texts of a pool that are judged, to learn from, at most a fifth of it.
    """
    encoder = Encoder(zoo.sentence_encoder()).to(context.device).eval()
    pieces = Pieces.read(require("sentence-encoder") / "vocab.json")
    train, test = (
        some_samples(context, zoo.data(data, split), count, rows)
        for split, count, rows in (
            ("train", context.scale.training, TRAIN_ROWS),
            ("test", context.scale.test, TEST_ROWS),
        )
    )
    coverage = nc.Coverage(encoder, [nc.MDSC(by=None), nc.LSC(by=None), nc.LCC()])
    reference = in_pieces(train, pieces)
    with quiet():
        coverage.calibrate(reference.named_batches(_BATCH), progress=False)
    known = encoder.embedded(reference)
    head = fitted(known, train.labels)
    mean = known.mean(0)
    axes = torch.linalg.svd(known - mean, full_matrices=False).Vh[:KEPT].T
    sets = {}
    for name, strength in STRENGTHS.items():
        own = in_pieces(shifted(context, TEXTS, test, strength), pieces)
        with quiet():
            found = gather(coverage, own.named_batches(_BATCH), Settings(every_score=True, progress=False))
        given = encoder.embedded(own)
        sure = confidence(head(given), len(given))
        assert sure is not None
        wrong = (sure.first != own.labels.to(sure.first.device)).cpu().numpy()
        columns = {score: found.columns[score] for score in SCORES_OF_STATES} | {"gini": sure.gini.cpu().numpy()}
        features = ((given - mean) @ axes).cpu().numpy()
        sets[name] = judged(context, columns, features, wrong, strength, pools, labels)
    return {
        "sentences": sets,
        "training inputs": len(train),
        "training error": round(
            float((head(known).argmax(1) != train.labels.to(known.device)).double().mean()), _DIGITS
        ),
    }


class Encoder(nn.Module):
    """Give each text's embedding as the states of one token, which are no scores of classes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    @override
    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return ``(batch, 1, width)``."""
        embedding: Tensor = self.network(tokens, lengths)
        return embedding[:, None]

    def embedded(self, samples: Samples) -> Tensor:
        """Return the embeddings of all texts, in float64."""
        with torch.no_grad():
            parts = [self.network(each["tokens"], each["lengths"]) for each in samples.named_batches(_BATCH)]
        return torch.cat(parts).double()


def in_pieces(samples: Samples, pieces: Pieces, steps: int = STEPS) -> Samples:
    """Return texts of numbered words as the encoder's tokens; words that have no number of their own are left out."""
    words = samples.words
    assert words is not None
    texts = (" ".join(words[number] for number in row if number > UNKNOWN) for row in samples.inputs.tolist())
    tokens = torch.from_numpy(pieces.encode(texts, steps)).to(samples.inputs.device)
    lengths = (tokens != PADDING).sum(1).clamp(min=1)
    return replace(samples, inputs=tokens, lengths=lengths, words=None)


def fitted(given: Tensor, labels: Tensor) -> nn.Linear:
    """Return the linear layer that logistic regression finds for embeddings of training texts."""
    # Slow to import, and needed here alone.
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(C=_INVERSE_RIDGE, max_iter=1000).fit(given.cpu().numpy(), labels.cpu().numpy())
    weight, bias = torch.from_numpy(found.coef_), torch.from_numpy(found.intercept_)
    if len(weight) == 1:
        weight, bias = torch.cat([-weight / 2, weight / 2]), torch.cat([-bias / 2, bias / 2])
    head = nn.Linear(weight.shape[1], len(weight), dtype=torch.float64)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    return head.to(given.device).requires_grad_(False)


def judged(
    context: ExperimentContext,
    columns: Mapping[str, np.ndarray],
    features: np.ndarray,
    wrong: np.ndarray,
    strength: int,
    pools: int,
    labels: int,
) -> dict[str, Any]:
    """Return figures of every order in many half pools, without labels and with those that a pool was asked for."""
    made: dict[str, Figures] = {}
    learnt: dict[str, Figures] = {}
    chosen: dict[str, Figures] = {}
    for number in range(pools):
        rows = pool_rows(context, len(wrong), strength, number)
        random = np.random.default_rng(context.combined_seed(227, strength, number))
        orders = {
            "random": random.permutation(rows),
            GINI: rows[np.argsort(-columns["gini"][rows], kind="stable")],
            PROMPTS: by_states(columns, rows),
        }
        for method, score in ALONE.items():
            orders[method] = rows[np.argsort(-columns[score][rows], kind="stable")]
        _keep(made, wrong, orders)
        wanted = min(labels, len(rows) // 5)
        drawn = random.choice(len(rows), wanted, replace=False)
        usual = {method: orders[method] for method in (GINI, PROMPTS)}
        _keep(learnt, wrong, _rest(rows, drawn, usual) | {LEARNT: by_states(columns, rows, wrong, drawn)})
        asked, order = clotho_order(features[rows], wrong[rows], wanted, random)
        others = _rest(rows, asked, usual) | {LEARNT: by_states(columns, rows, wrong, asked)}
        _keep(chosen, wrong, others | {CLOTHO: rows[order]})
    return {
        "inputs": len(wrong),
        "faults": int(wrong.sum()),
        "orders": made,
        "after labels": learnt,
        "after Clotho's labels": chosen,
    }


def by_states(
    columns: Mapping[str, np.ndarray],
    rows: np.ndarray,
    wrong: np.ndarray | None = None,
    places: np.ndarray | None = None,
) -> np.ndarray:
    """Return rows as the library ranks prompts; with places that were judged, learnt from these and without them."""
    names = Names()
    names.count = len(rows)
    own = {score: columns[score][rows] for score in SCORES_OF_STATES}
    known = None
    if wrong is not None and places is not None:
        known = {str(place): int(wrong[rows[place]]) for place in places.tolist()}
    nothing = Scorers({}, None, None, "", 0, None)
    order: np.ndarray = rows[queue_of(Gathered(SCORES_OF_STATES, own, names, nothing), known, (), None).order]
    return order


def _rest(rows: np.ndarray, places: np.ndarray, orders: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    gone = rows[places]
    return {method: order[~np.isin(order, gone)] for method, order in orders.items()}


def _keep(onto: dict[str, Figures], wrong: np.ndarray, orders: Mapping[str, np.ndarray]) -> None:
    for method, order in orders.items():
        own = onto.setdefault(method, {})
        for name, figure in figures(wrong[order]).items():
            own.setdefault(name, []).append(round(figure, _DIGITS))

"""Prepare the subjects of the proof: networks with data of several kinds, each with its pools and orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from neuralcov import NC
from neuralcov.sources.samples import Samples
from neuralcov_lab import zoo
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.diversity_text import review_subject
from neuralcov_lab.experiments.lcc.images import image_makers
from neuralcov_lab.experiments.lcc.pools import Plan, make_plan
from neuralcov_lab.experiments.lcc.rows import row_makers
from neuralcov_lab.experiments.lcc.small import train_on_the_spot
from neuralcov_lab.experiments.lcc.texts import text_makers
from neuralcov_lab.experiments.measuring import CalibratedCriteria
from neuralcov_lab.experiments.named_subjects import IMAGENET, IMAGES, SUBJECTS, TEXTS, named_subject
from neuralcov_lab.experiments.settings import AnyCriterion
from neuralcov_lab.experiments.subjects import TEST_ROWS, TRAIN_ROWS, image_subject, some_samples

REVIEWS = "lstm"
# Data sets on which a network of the zoo is trained when it is asked for: NETWORK-DATA.
ON_THE_SPOT = ("digits", "mnist")
STEPS = 1_000
_MOST = 10_000


@dataclass(frozen=True, eq=False)
class ProofSubject:
    """Hold a network, its data, and what kind of data it is.

    Args:
        name: of the subject.
        kind: ``images``, ``texts`` or ``rows``.
        model: the network.
        train: training data.
        test: test data.
        most: inputs that the network takes at once.
    """

    name: str
    kind: str
    model: nn.Module
    train: Samples
    test: Samples
    most: int = _MOST

    def batches(self, samples: Samples, size: int) -> Iterable[Any]:
        """Serve samples ready for the network."""
        size = min(size, self.most)
        return samples.named_batches(size) if self.kind == TEXTS else samples.batches(size)

    def part(self, part: int) -> ProofSubject:
        """Return it with one part of its data of so many, the first."""
        if part == 1:
            return self
        train, test = (samples.take(slice(0, len(samples) // part)) for samples in (self.train, self.test))
        return replace(self, train=train, test=test)

    def learn(self, context: ExperimentContext, criteria: Sequence[AnyCriterion]) -> CalibratedCriteria:
        """Calibrate criteria on the training data."""
        batches = self.batches(self.train, context.scale.batch)
        return CalibratedCriteria.learn(self.model, criteria, batches, chunk=context.scale.chunk)

    def reader(self, context: ExperimentContext) -> CalibratedCriteria:
        """Return what runs the network and gives activations."""
        few = replace(self, train=self.train.take(slice(0, 100)))
        return few.learn(context, [NC(0.75)])


def proof_subject(context: ExperimentContext, name: str, part: int = 1) -> ProofSubject:
    """Return a subject by name, with all of its data or one part of so many.

    It is one of ``neuralcov_lab.experiments.named_subjects``, a network trained on the spot such as ``mlp-mnist``,
    ``lstm`` for reviews, or an image classifier of the paper's.
    """
    return context.prepare(("proof subject", name), lambda: _subject(context, name)).part(part)


def _subject(context: ExperimentContext, name: str) -> ProofSubject:
    if name in SUBJECTS:
        own = named_subject(context, name)
        return ProofSubject(name, own.kind, own.model, own.train, own.test, own.most)
    if name == REVIEWS:
        model, train, test = review_subject(context)
        return ProofSubject(name, TEXTS, model, train, test)
    network, _, data = name.partition("-")
    if data in ON_THE_SPOT:
        whole, train, test = spot_data(context, data)
        return ProofSubject(name, IMAGES, train_on_the_spot(network, whole, STEPS, context.seed)[-1], train, test)
    found = image_subject(context, name)
    return ProofSubject(name, IMAGES, found.model, found.train, found.test)


def spot_data(context: ExperimentContext, data: str) -> tuple[Samples, Samples, Samples]:
    """Return all training data, and as much for calibration and for testing as the scale says."""
    whole = zoo.data(data, "train").to(context.device)
    train = some_samples(context, whole, context.scale.training, TRAIN_ROWS)
    return whole, train, some_samples(context, zoo.data(data, "test"), context.scale.test, TEST_ROWS)


def proof_plan(context: ExperimentContext, subject: ProofSubject, draws: int) -> Plan:
    """Return the pools of a subject and the orders among them."""
    test, batch = subject.test, min(context.scale.batch, subject.most)
    if subject.kind == IMAGES:
        # The network of ImageNet's form asks for the size of images, which tracing cannot follow.
        makers = image_makers(context, subject.model, test, batch, misled=not subject.name.endswith(IMAGENET))
    elif subject.kind == TEXTS:
        makers = text_makers(context, test, batch)
    else:
        makers = row_makers(context, subject.model, test, batch)
    return make_plan(context, test, lambda: subject.batches(test, batch), makers, draws)

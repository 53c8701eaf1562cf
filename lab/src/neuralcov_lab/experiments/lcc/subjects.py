"""Prepare the subjects of the proof: networks with data of several kinds, each with its pools and orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from neuralcov import NC
from neuralcov.sources.samples import Samples
from neuralcov_lab import zoo
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.images import image_plan
from neuralcov_lab.experiments.lcc.pools import Plan
from neuralcov_lab.experiments.lcc.small import train_small
from neuralcov_lab.experiments.measuring import CalibratedCriteria
from neuralcov_lab.experiments.settings import AnyCriterion
from neuralcov_lab.experiments.subjects import TEST_ROWS, TRAIN_ROWS, Subject, image_subject, some_samples

IMAGES = "images"
SMALL = ("cnn", "mlp")
STEPS = 1_000


@dataclass(frozen=True, eq=False)
class ProofSubject:
    """Hold a network, its data, and what kind of data it is."""

    name: str
    kind: str
    model: nn.Module
    train: Samples
    test: Samples

    def batches(self, samples: Samples, size: int) -> Iterable[Any]:
        """Serve samples ready for the network."""
        return samples.batches(size) if samples.lengths is None else samples.named_batches(size)

    def learn(self, context: ExperimentContext, criteria: Sequence[AnyCriterion]) -> CalibratedCriteria:
        """Calibrate criteria on the training data, once for every set of them."""
        names = tuple(criterion.name for criterion in criteria)
        return context.prepare(
            ("proof criteria", self.name, names),
            lambda: CalibratedCriteria.learn(
                self.model, criteria, self.batches(self.train, context.scale.batch), chunk=context.scale.chunk
            ),
        )

    def reader(self, context: ExperimentContext) -> CalibratedCriteria:
        """Return what runs the network and gives activations."""
        return self.learn(context, [NC(0.75)])


def proof_subject(context: ExperimentContext, name: str) -> ProofSubject:
    """Return a subject by name: a network of the zoo, or ``DATA-KIND`` for a small one trained on the spot."""
    if name.rpartition("-")[2] in SMALL:
        return context.prepare(("proof subject", name), lambda: _small(context, name))
    found = image_subject(context, name)
    return ProofSubject(name, IMAGES, found.model, found.train, found.test)


def small_name(name: str) -> tuple[str, str]:
    """Return the data set and the kind of network that the name of a small one tells."""
    data, _, kind = name.rpartition("-")
    return data, kind


def _small(context: ExperimentContext, name: str) -> ProofSubject:
    data, kind = small_name(name)
    whole = zoo.data(data, "train").to(context.device)
    model = train_small(kind, whole, STEPS, context.seed)[-1]
    train = some_samples(context, whole, context.scale.training, TRAIN_ROWS)
    return ProofSubject(
        name, IMAGES, model, train, some_samples(context, zoo.data(data, "test"), context.scale.test, TEST_ROWS)
    )


def proof_plan(context: ExperimentContext, subject: ProofSubject, draws: int) -> Plan:
    """Return the pools of a subject and the orders among them."""
    return image_plan(context, Subject(subject.name, subject.model, subject.train, subject.test), draws)

"""Subjects by name, beside the paper's: other data, images, texts and rows, and one network at many stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from neuralcov.core.errors import InputError
from neuralcov_lab import zoo
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.scales import TOY
from neuralcov_lab.experiments.subjects import TEST_ROWS, TRAIN_ROWS, Subject, some_samples, trained
from neuralcov_lab.experiments.suites import NORMALISED, PIXEL, NoisyCopies, SubstitutedWords
from neuralcov_lab.experiments.toys import STEPS, WORDS, toy_classifier, toy_reviews, toy_rows
from neuralcov_lab.networks.imagenet import MEAN, STD

IMAGES, TEXTS, ROWS = "images", "texts", "rows"
IMAGENET = "imagenet"
# How the network at many stages is trained: `neuralcov train convnet --seed S --keep 1 ... --keep 10`.
STAGED, SEEDS, EPOCHS = "convnet-fashion-mnist", (0, 1, 2), tuple(range(1, 11))


@dataclass(frozen=True)
class SubjectName:
    """Say what stands behind a subject's name.

    Args:
        network: of the zoo.
        data: of the zoo, or ``toy`` for what is made on the spot.
        kind: ``images``, ``texts`` or ``rows``.
        most: inputs that the network takes at once without asking for too much memory.
    """

    network: str
    data: str
    kind: str
    most: int = 10_000


SUBJECTS = {
    "convnet-fashion-mnist": SubjectName("convnet", "fashion-mnist", IMAGES),
    "mlp-fashion-mnist": SubjectName("mlp", "fashion-mnist", IMAGES),
    "transformer-newsgroups": SubjectName("transformer", "newsgroups", TEXTS, most=1_000),
    "mlp-letter": SubjectName("mlp", "letter", ROWS),
    # Looked at in many stages; the large network of the paper's is named without its data.
    "mobilenet_v2-cifar10": SubjectName("mobilenet_v2", "cifar10", IMAGES, most=500),
    # There are no images of ImageNet here: it sees CIFAR-10 enlarged, and its labels are CIFAR-10's.
    "mobilenet_v2-imagenet": SubjectName("mobilenet_v2_imagenet", "cifar10", IMAGES, most=50),
    "transformer-toy": SubjectName("transformer", TOY, TEXTS),
    "mlp-toy": SubjectName("mlp", TOY, ROWS),
}


@dataclass(frozen=True, eq=False)
class NamedSubject(Subject):
    """A classifier and its data, on the context's device, with what is peculiar to its kind of data.

    Args:
        name: of the subject.
        kind: ``images``, ``texts`` or ``rows``.
        most: inputs at a time.
    """

    name: str
    kind: str
    most: int

    def batches(self, samples: zoo.Samples, size: int) -> Iterable[Any]:
        """Serve samples ready for the network: texts with their lengths, so that padding is not measured."""
        size = min(size, self.most)
        return samples.named_batches(size) if self.kind == TEXTS else samples.batches(size)

    def copies(
        self, seeds: zoo.Samples, count: int, strength: float, batch: int, number: int = 0, unit: str | None = None
    ) -> Iterable[Any]:
        """Make noisy copies of a few inputs, ready for the network.

        Args:
            seeds: the inputs.
            count: how many copies.
            strength: for images and rows the bound of the noise; for texts the share of words replaced.
            batch: copies at a time.
            number: of the noise; another number, other noise.
            unit: of the noise: ``pixel``, the default for images, or ``normalised``, the only one for rows.
        """
        batch = min(batch, self.most)
        if self.kind == TEXTS:
            return SubstitutedWords(seeds, count, strength, batch, number)
        unit = unit or (PIXEL if self.kind == IMAGES else NORMALISED)
        if self.kind == ROWS and unit != NORMALISED:
            raise InputError(f"{self.name}: rows have no pixels; the unit of their noise is {NORMALISED!r}")
        return NoisyCopies(seeds, count, strength, unit, batch, number)


def named_subject(context: ExperimentContext, name: str) -> NamedSubject:
    """Return a subject with as much of its data as the scale says."""
    behind = _behind(name)

    def make() -> NamedSubject:
        train, test = (_data(context, behind, split) for split in ("train", "test"))
        model = _model(behind, train)
        return NamedSubject(
            network=behind.network,
            model=model.to(context.device).eval(),
            train=some_samples(context, train, context.scale.training, TRAIN_ROWS),
            test=some_samples(context, test, context.scale.test, TEST_ROWS),
            name=name,
            kind=behind.kind,
            most=behind.most,
        )

    return context.prepare(("named subject", name), make)


def stages(
    context: ExperimentContext,
    name: str = STAGED,
    seeds: Iterable[int] = SEEDS,
    epochs: Iterable[int] = EPOCHS,
) -> Iterator[tuple[int, int, NamedSubject]]:
    """Go through a subject's trainings: seed, epoch, and the subject with the weights kept then; data stay the same."""
    subject, behind, epochs = named_subject(context, name), _behind(name), tuple(epochs)
    arguments = zoo.arguments_for(behind.network, subject.train)
    for seed in seeds:
        for epoch in epochs:
            model = trained(behind.network, behind.data, seed, epoch, **arguments)
            yield seed, epoch, replace(subject, model=model.to(context.device))


def _behind(name: str) -> SubjectName:
    if name not in SUBJECTS:
        raise InputError(f"there is no subject {name!r}: there are {', '.join(SUBJECTS)}")
    return SUBJECTS[name]


def _data(context: ExperimentContext, behind: SubjectName, split: str) -> zoo.Samples:
    if behind.data == TOY:
        count, seed = (context.scale.training, 1) if split == "train" else (context.scale.test, 2)
        return toy_reviews(count, seed) if behind.kind == TEXTS else toy_rows(count, seed)
    samples = zoo.data(behind.data, split)
    return replace(samples, mean=MEAN, std=STD) if behind.network.endswith(IMAGENET) else samples


def _model(behind: SubjectName, train: zoo.Samples) -> nn.Module:
    if behind.data == TOY:
        small = {"vocabulary": WORDS, "steps": STEPS, "width": 16} if behind.kind == TEXTS else {"hidden": 32}
        return toy_classifier(behind.network, train, **small)
    if behind.network.endswith(IMAGENET):
        return zoo.build(behind.network)
    return trained(behind.network, behind.data, **zoo.arguments_for(behind.network, train))

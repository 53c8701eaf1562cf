"""Prepare what experiments are made on: a trained network, its data, and criteria calibrated on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from neuralcov import Activations, Coverage
from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments.attacks import CW_CONSTANT, LEAST_CHANGE, Attacked, attack, kept_prediction
from neuralcov_lab.experiments.context import ExperimentContext, numbers_of
from neuralcov_lab.experiments.measuring import CalibratedCriteria, quiet
from neuralcov_lab.experiments.settings import AnyCriterion, panel_settings, path_settings, single_settings, taught
from neuralcov_lab.fetching.cache import cache_folder
from neuralcov_lab.training.files import kept_path

VARIABLE = "NEURALCOV_WEIGHTS"
TEST_ROWS, TRAIN_ROWS, ATTACK_ROWS, PERTURBED_ROWS, PATH_ROWS = range(100, 105)


@dataclass(frozen=True, eq=False)
class Subject:
    """An image classifier and its data, on the context's device."""

    network: str
    model: nn.Module
    train: zoo.Samples
    test: zoo.Samples


def weights_folder() -> Path:
    """Return where trained weights lie: ``NEURALCOV_WEIGHTS``, or ``weights`` in the data cache."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else cache_folder() / "weights"


def weights_path(network: str, data: str, seed: int = 0, epoch: int | None = None) -> Path:
    """Return where the weights of a training lie: ``NETWORK-DATA-seedS.epochE``, without a seed of 0.

    >>> weights_path("convnet", "mnist", 1, 3).name
    'convnet-mnist-seed1.epoch3.safetensors'
    """
    whole = weights_folder() / (f"{network}-{data}" + (f"-seed{seed}" if seed else "") + ".safetensors")
    return whole if epoch is None else kept_path(whole, epoch)


def trained(network: str, data: str, seed: int = 0, epoch: int | None = None, **arguments: Any) -> nn.Module:
    """Return a network of the zoo with the weights of a training, widened to float32.

    Args:
        network: its name in the zoo.
        data: what it was trained on.
        seed: of that training.
        epoch: after which its weights were kept; by default those at the end.
        arguments: to build it with.
    """
    path = weights_path(network, data, seed, epoch)
    if not path.is_file():
        options = (f" --seed {seed}" if seed else "") + (f" --keep {epoch}" if epoch else "")
        raise DataError(
            f"{path}: there are no such weights; `neuralcov train {network} --data {data}{options} -o "
            f"{weights_path(network, data, seed)}` makes them, and {VARIABLE} names another folder"
        )
    model = zoo.build(network, **arguments)
    state = load_file(path).items()
    model.load_state_dict({name: value.float() if value.is_floating_point() else value for name, value in state})
    return model.eval()


def image_subject(context: ExperimentContext, network: str) -> Subject:
    """Return a classifier with as much of its data as the scale says.

    It is ``digits``, trained on the spot, ``NETWORK-DATA``, or a network for CIFAR-10.
    """

    def make() -> Subject:
        own, _, named = network.partition("-")
        data = "digits" if network == "digits" else named or "cifar10"
        train, test = zoo.data(data, "train"), zoo.data(data, "test")
        if network == "digits":
            model: nn.Module = zoo.train_digits(progress=False)
        else:
            model = trained(own, data, **(zoo.arguments_for(own, train) if named else {}))
        return Subject(
            network,
            model.to(context.device).eval(),
            some_samples(context, train, context.scale.training, TRAIN_ROWS),
            some_samples(context, test, context.scale.test, TEST_ROWS),
        )

    return context.prepare(("subject", network), make)


def image_criteria(context: ExperimentContext, network: str) -> CalibratedCriteria:
    """Return all criteria but NPC, or later ones, calibrated on the training data and started from it."""
    subject, companion = image_subject(context, network), context.companion
    return context.prepare(
        ("criteria", network, companion),
        lambda: CalibratedCriteria.learn(
            subject.model,
            panel_settings(companion),
            subject.train.batches(context.scale.batch),
            chunk=context.scale.chunk,
        ),
    )


def path_criteria(context: ExperimentContext, network: str) -> CalibratedCriteria:
    """NPC, calibrated on a part of the training data and started from that."""
    subject = image_subject(context, network)

    def make() -> CalibratedCriteria:
        part = some_samples(context, subject.train, context.scale.path_training, PATH_ROWS)
        return CalibratedCriteria.learn(subject.model, path_settings(), part.batches(min(context.scale.batch, 500)))

    return context.once(("paths", network), make)


def calibrated(context: ExperimentContext, network: str, wanted: AnyCriterion) -> AnyCriterion:
    """Return one criterion as the training data taught it.

    It learns beside those that learn the same, in one pass over the data. The criteria would do as well, but all its
    settings also measure the training data, for which a single criterion has no use.
    """
    if not wanted.learns:
        return wanted
    if "relevance" in wanted.needs:
        return taught([wanted], path_criteria(context, network).criteria)[0]
    subject = image_subject(context, network)

    def learn() -> tuple[AnyCriterion, ...]:
        learner = Coverage(subject.model, [other for other in single_settings() if other.learns == wanted.learns])
        with quiet():
            learner.calibrate(subject.train.batches(context.scale.batch), progress=False)
        return learner.criteria

    return taught([wanted], context.prepare(("learnt", network, wanted.learns), learn))[0]


def activations_of_test(context: ExperimentContext, network: str) -> Activations:
    """Return what every layer gives for the test suite."""
    subject, criteria = image_subject(context, network), image_criteria(context, network)
    return context.once(
        ("test", network, context.companion), lambda: criteria.keep(subject.test.batches(context.scale.batch))
    )


def attacked(
    context: ExperimentContext, network: str, split: str, method: str, constant: float = CW_CONSTANT, run: int = 0
) -> Attacked:
    """Attacked training or test inputs; in every run other ones, where there are more, and from another start."""
    subject, scale = image_subject(context, network), context.scale

    def make() -> Attacked:
        count = scale.attacked if method == "PGD" else scale.cw_inputs
        samples = subject.train if split == "train" else subject.test
        chosen = some_samples(context, samples, count, *numbers_of(ATTACK_ROWS, run))
        return attack(subject.model, chosen, method, scale, context.seed_of(run), constant=constant)

    return context.once(("attacked", network, split, method, constant, run), make)


def perturbed(
    context: ExperimentContext,
    network: str,
    method: str,
    constant: float = CW_CONSTANT,
    run: int = 0,
    least: float = LEAST_CHANGE,
) -> zoo.Samples:
    """Test inputs moved toward an attack that keep their prediction; other ones in every run."""
    subject, scale = image_subject(context, network), context.scale

    def make() -> zoo.Samples:
        # A few more than wanted, since some flip under the slightest push.
        chosen = some_samples(
            context, subject.test, scale.perturbed + scale.perturbed // 5, *numbers_of(PERTURBED_ROWS, run)
        )
        moved = attack(subject.model, chosen, method, scale, context.seed_of(run), constant=constant)
        return kept_prediction(subject.model, chosen, moved.samples, scale.perturbed, least)

    return context.once(("perturbed", network, method, constant, run, least), make)


def some_samples(context: ExperimentContext, samples: zoo.Samples, count: int, *numbers: int) -> zoo.Samples:
    """Return at most so many of the samples, drawn at random, on the device; all of them in their own order."""
    if count >= len(samples):
        return samples.to(context.device)
    rows = context.rows(len(samples), count, *numbers)
    return samples.take(rows.to(samples.inputs.device)).to(context.device)


def seeds_of(context: ExperimentContext, samples: zoo.Samples, run: int) -> zoo.Samples:
    """Return the few inputs that copies are made of; other ones in every run."""
    return samples.take(context.rows(len(samples), context.scale.noise_seeds, 7, run))


def random_classes(context: ExperimentContext, classes: int, wanted: int, draw: int) -> torch.Tensor:
    """Return some of the classes, other ones in every draw."""
    return context.rows(classes, wanted, 11, draw)

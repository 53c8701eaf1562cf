"""Subjects whose weights were published with DeepGD (Aghababaeyan and others, 2023), which are not ours."""

from __future__ import annotations

from dataclasses import replace

from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.subjects import ProofSubject
from neuralcov_lab.experiments.named_subjects import IMAGES
from neuralcov_lab.experiments.subjects import TEST_ROWS, TRAIN_ROWS, some_samples
from neuralcov_lab.fetching.cache import cache_folder
from neuralcov_lab.networks.keras_file import read_keras

# Name → the file in the folder LSA_DSA/model of the repository, and the data the network was trained on.
PUBLISHED = {
    "deepgd-lenet1": ("model_mnist_LeNet1.h5", "mnist"),
    "deepgd-lenet5": ("model_mnist_LeNet5.h5", "mnist"),
    "deepgd-lenet4": ("model_fashion_mnist_LeNet4.h5", "fashion-mnist"),
    "deepgd-resnet20": ("Cifar10_resnet20.h5", "cifar10"),
}
_REPOSITORY = "https://github.com/ZOE-CA/DeepGD"


def published_subject(context: ExperimentContext, name: str) -> ProofSubject:
    """Return a published network with its data; pixels go from −0.5 to 0.5, as it was trained."""
    file, data = PUBLISHED[name]
    path = cache_folder() / "deepgd" / file
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; put LSA_DSA/model/{file} of {_REPOSITORY} there")
    train, test = (_centred(zoo.data(data, split)) for split in ("train", "test"))
    return ProofSubject(
        name,
        IMAGES,
        read_keras(path).to(context.device),
        some_samples(context, train, context.scale.training, TRAIN_ROWS),
        some_samples(context, test, context.scale.test, TEST_ROWS),
    )


def _centred(samples: zoo.Samples) -> zoo.Samples:
    channels = samples.inputs.shape[1]
    return replace(samples, mean=(0.5,) * channels, std=(1.0,) * channels)

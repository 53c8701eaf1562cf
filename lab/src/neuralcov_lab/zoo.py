"""Networks and data sets by the names that commands use, and the source ``zoo:``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from neuralcov.core.errors import InputError
from neuralcov.demo.digits import DigitsNet, digits, train_digits
from neuralcov.sources.data import image_folder
from neuralcov.sources.samples import Batches, NamedBatches, Samples
from neuralcov_lab.data.cifar10 import cifar10
from neuralcov_lab.data.imdb import imdb, imdb_vocabulary
from neuralcov_lab.data.letter import letter
from neuralcov_lab.data.mnist import fashion_mnist, mnist
from neuralcov_lab.data.newsgroups import newsgroups
from neuralcov_lab.fetching.fetch import fetch
from neuralcov_lab.networks import (
    MLP,
    VAE,
    AdaIN,
    Classifier,
    ConditionalVAE,
    ConvNet,
    Discriminator,
    Generator,
    ImageNetMobileNet,
    Inception,
    Net,
    SentenceEncoder,
    SentimentLSTM,
    TextTransformer,
    adain,
    inception,
    mobilenet_v2,
    mobilenet_v2_imagenet,
    resnet50,
    sentence_encoder,
    vgg16_bn,
)

__all__ = [
    "DATA",
    "MLP",
    "NETWORKS",
    "VAE",
    "AdaIN",
    "Batches",
    "Classifier",
    "ConditionalVAE",
    "ConvNet",
    "DigitsNet",
    "Discriminator",
    "Generator",
    "ImageNetMobileNet",
    "Inception",
    "NamedBatches",
    "Net",
    "Samples",
    "SentenceEncoder",
    "SentimentLSTM",
    "TextTransformer",
    "ZooSource",
    "adain",
    "arguments_for",
    "build",
    "cifar10",
    "data",
    "digits",
    "fashion_mnist",
    "fetch",
    "image_folder",
    "imdb",
    "imdb_vocabulary",
    "inception",
    "letter",
    "mnist",
    "mobilenet_v2",
    "mobilenet_v2_imagenet",
    "newsgroups",
    "resnet50",
    "sentence_encoder",
    "train_digits",
    "vgg16_bn",
]

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "digits": DigitsNet,
    "resnet50": resnet50,
    "vgg16_bn": vgg16_bn,
    "mobilenet_v2": mobilenet_v2,
    "lstm": SentimentLSTM,
    "generator": Generator,
    "discriminator": Discriminator,
    "net": Net,
    "net_classifier": Classifier,
    "vae": VAE,
    "cvae": ConditionalVAE,
    "convnet": ConvNet,
    "mlp": MLP,
    "transformer": TextTransformer,
    "mobilenet_v2_imagenet": mobilenet_v2_imagenet,
    "inception": inception,
    "adain": adain,
    "sentence_encoder": sentence_encoder,
}
DATA: dict[str, Callable[..., Samples]] = {
    "digits": digits,
    "cifar10": cifar10,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "imdb": imdb,
    "newsgroups": newsgroups,
    "letter": letter,
}


def build(name: str, **arguments: Any) -> nn.Module:
    """Build a network of the zoo, with fresh weights.

    ``inception``, ``adain``, ``sentence_encoder`` and ``mobilenet_v2_imagenet`` come with the published ones.

    >>> type(build("digits")).__name__
    'DigitsNet'
    """
    if name not in NETWORKS:
        raise InputError(f"the zoo has no network {name!r}: there are {', '.join(NETWORKS)}")
    try:
        return NETWORKS[name](**arguments)
    except TypeError as error:
        raise InputError(f"zoo network {name!r}: {error}") from error


def arguments_for(name: str, samples: Samples) -> dict[str, Any]:
    """Return what samples say about a network for them: classes, and the size of images or rows.

    >>> arguments_for("mlp", digits("test"))
    {'num_classes': 10, 'features': 64}
    """
    known = {
        "num_classes": len(samples.classes),
        "input_size": samples.inputs.shape[-1],
        "features": math.prod(samples.inputs.shape[1:]),
    }
    accepted = inspect.signature(NETWORKS[name]).parameters
    return {argument: value for argument, value in known.items() if argument in accepted}


def data(name: str, split: str = "test", folder: Path | str | None = None) -> Samples:
    """Return a split of a data set of the zoo.

    Args:
        name: a name of ``neuralcov data list`` that holds samples, or ``digits``, which is shipped.
        split: ``train`` or ``test``; ``imdb`` has ``validation`` too.
        folder: your own copy in one of the usual layouts, in place of the cache.
    """
    if name not in DATA:
        raise InputError(f"the zoo has no data {name!r}: there are {', '.join(DATA)}")
    if folder is None:
        return DATA[name](split)
    if name == "digits":
        raise InputError(f"folder={str(folder)!r}: digits are shipped and come from nowhere else")
    return DATA[name](split, Path(folder))


class ZooSource:
    """Offer models and data as the source ``zoo:``, found by neuralcov through its entry point."""

    def model(self, name: str, **arguments: Any) -> nn.Module:
        """Build a network of the zoo."""
        return build(name, **arguments)

    def data(self, name: str, split: str = "test", folder: Path | str | None = None) -> Samples:
        """Return a split of a data set of the zoo."""
        return data(name, split, folder)

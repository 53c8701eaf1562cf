"""What the zoo holds, by the names commands use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from neuralcov.core.errors import InputError
from neuralcov.demo.digits import DigitsNet, digits
from neuralcov.sources.samples import Samples
from neuralcov_lab import networks
from neuralcov_lab.data.cifar10 import cifar10
from neuralcov_lab.data.imdb import imdb
from neuralcov_lab.data.mnist import fashion_mnist, mnist

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "digits": DigitsNet,
    "resnet50": networks.resnet50,
    "vgg16_bn": networks.vgg16_bn,
    "mobilenet_v2": networks.mobilenet_v2,
    "lstm": networks.SentimentLSTM,
    "generator": networks.Generator,
    "discriminator": networks.Discriminator,
    "net": networks.Net,
    "net_classifier": networks.Classifier,
    "vae": networks.VAE,
    "cvae": networks.ConditionalVAE,
    "inception": networks.inception,
    "adain": networks.adain,
}
DATA: dict[str, Callable[..., Samples]] = {
    "digits": digits,
    "cifar10": cifar10,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "imdb": imdb,
}


def build(name: str, **arguments: Any) -> nn.Module:
    """A network of the zoo, with fresh weights; ``inception`` and ``adain`` come with the published ones.

    >>> type(build("digits")).__name__
    'DigitsNet'
    """
    if name not in NETWORKS:
        raise InputError(f"the zoo has no network {name!r}: there are {', '.join(NETWORKS)}")
    try:
        return NETWORKS[name](**arguments)
    except TypeError as error:
        raise InputError(f"zoo network {name!r}: {error}") from error


def data(name: str, split: str = "test", folder: Path | str | None = None) -> Samples:
    """A split of a data set of the zoo.

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
    """The source ``zoo:`` of models and data, found by neuralcov through its entry point."""

    def model(self, name: str, **arguments: Any) -> nn.Module:
        """Build a network of the zoo."""
        return build(name, **arguments)

    def data(self, name: str, split: str = "test", folder: Path | str | None = None) -> Samples:
        """Return a split of a data set of the zoo."""
        return data(name, split, folder)

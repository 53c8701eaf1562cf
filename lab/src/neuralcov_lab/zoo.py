"""Everything of the zoo under one name: networks, data sets, and what fetches them."""

from neuralcov.demo.digits import DigitsNet, digits, train_digits
from neuralcov.sources.folders import image_folder
from neuralcov.sources.samples import Batches, NamedBatches, Samples
from neuralcov_lab.catalogue import build, data
from neuralcov_lab.data.cifar10 import cifar10
from neuralcov_lab.data.imdb import imdb, imdb_vocabulary
from neuralcov_lab.data.mnist import fashion_mnist, mnist
from neuralcov_lab.fetching.fetch import fetch
from neuralcov_lab.networks import (
    VAE,
    AdaIN,
    Classifier,
    ConditionalVAE,
    Discriminator,
    Generator,
    Inception,
    Net,
    SentimentLSTM,
    adain,
    inception,
    mobilenet_v2,
    resnet50,
    vgg16_bn,
)

__all__ = [
    "VAE",
    "AdaIN",
    "Batches",
    "Classifier",
    "ConditionalVAE",
    "DigitsNet",
    "Discriminator",
    "Generator",
    "Inception",
    "NamedBatches",
    "Net",
    "Samples",
    "SentimentLSTM",
    "adain",
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
    "mnist",
    "mobilenet_v2",
    "resnet50",
    "train_digits",
    "vgg16_bn",
]

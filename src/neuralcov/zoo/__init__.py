"""Models and data sets that the demo and the experiments use. Only the commands and the experiments import it."""

from neuralcov.zoo.catalogue import build, data
from neuralcov.zoo.cifar10 import cifar10
from neuralcov.zoo.digits import DigitsNet, digits, train_digits
from neuralcov.zoo.fetch import fetch
from neuralcov.zoo.folders import image_folder
from neuralcov.zoo.imdb import imdb, imdb_vocabulary
from neuralcov.zoo.mnist import fashion_mnist, mnist
from neuralcov.zoo.networks import (
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
from neuralcov.zoo.samples import Batches, NamedBatches, Samples

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

"""The networks of the zoo, one file per family."""

from neuralcov.zoo.networks.adain import AdaIN, adain
from neuralcov.zoo.networks.generator import Discriminator, Generator
from neuralcov.zoo.networks.inception import Inception, inception
from neuralcov.zoo.networks.lstm import SentimentLSTM
from neuralcov.zoo.networks.mobilenet import MobileNetV2, mobilenet_v2
from neuralcov.zoo.networks.net import VAE, Classifier, ConditionalVAE, Net
from neuralcov.zoo.networks.resnet import ResNet50, resnet50
from neuralcov.zoo.networks.vgg import VGG16BN, vgg16_bn

__all__ = [
    "VAE",
    "AdaIN",
    "Classifier",
    "ConditionalVAE",
    "Discriminator",
    "Generator",
    "Inception",
    "MobileNetV2",
    "Net",
    "ResNet50",
    "SentimentLSTM",
    "VGG16BN",
    "adain",
    "inception",
    "mobilenet_v2",
    "resnet50",
    "vgg16_bn",
]

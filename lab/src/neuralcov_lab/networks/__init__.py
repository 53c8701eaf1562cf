"""The networks of the zoo, one file per family."""

from neuralcov_lab.networks.adain import AdaIN, adain
from neuralcov_lab.networks.generator import Discriminator, Generator
from neuralcov_lab.networks.imagenet import ImageNetMobileNet, mobilenet_v2_imagenet
from neuralcov_lab.networks.inception import Inception, inception
from neuralcov_lab.networks.lstm import SentimentLSTM
from neuralcov_lab.networks.mobilenet import MobileNetV2, mobilenet_v2
from neuralcov_lab.networks.net import VAE, Classifier, ConditionalVAE, Net
from neuralcov_lab.networks.plain import MLP, ConvNet
from neuralcov_lab.networks.resnet import ResNet50, resnet50
from neuralcov_lab.networks.sentence_encoder import SentenceEncoder, sentence_encoder
from neuralcov_lab.networks.transformer import TextTransformer
from neuralcov_lab.networks.vgg import VGG16BN, vgg16_bn

__all__ = [
    "MLP",
    "VAE",
    "AdaIN",
    "Classifier",
    "ConditionalVAE",
    "ConvNet",
    "Discriminator",
    "Generator",
    "ImageNetMobileNet",
    "Inception",
    "MobileNetV2",
    "Net",
    "ResNet50",
    "SentenceEncoder",
    "SentimentLSTM",
    "TextTransformer",
    "VGG16BN",
    "adain",
    "inception",
    "mobilenet_v2",
    "mobilenet_v2_imagenet",
    "resnet50",
    "sentence_encoder",
    "vgg16_bn",
]

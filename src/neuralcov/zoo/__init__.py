"""Models and data sets that the demo and the experiments use. Only the commands and the experiments import it."""

from neuralcov.zoo.catalogue import build, data
from neuralcov.zoo.digits import DigitsNet, digits, train_digits
from neuralcov.zoo.folders import image_folder
from neuralcov.zoo.samples import Batches, Samples

__all__ = ["Batches", "DigitsNet", "Samples", "build", "data", "digits", "image_folder", "train_digits"]

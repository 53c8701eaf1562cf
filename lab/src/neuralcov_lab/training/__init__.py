"""Train the networks of the zoo."""

from neuralcov_lab.training.files import Card, write_weights
from neuralcov_lab.training.generate import gaussian_of_generator, gaussian_of_samples
from neuralcov_lab.training.recipe import RECIPES, Recipe, recipe_of
from neuralcov_lab.training.run import EpochReport, Settings, train
from neuralcov_lab.training.tasks import accuracy

__all__ = [
    "RECIPES",
    "Card",
    "EpochReport",
    "Recipe",
    "Settings",
    "accuracy",
    "gaussian_of_generator",
    "gaussian_of_samples",
    "recipe_of",
    "train",
    "write_weights",
]

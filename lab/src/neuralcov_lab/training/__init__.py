"""Training the networks of the zoo."""

from neuralcov_lab.training.card import Card
from neuralcov_lab.training.classify import accuracy
from neuralcov_lab.training.fid import gaussian_of_generator, gaussian_of_samples
from neuralcov_lab.training.recipe import RECIPES, Recipe, recipe_of
from neuralcov_lab.training.run import Report, Settings, train
from neuralcov_lab.training.weights import write_weights

__all__ = [
    "RECIPES",
    "Card",
    "Recipe",
    "Report",
    "Settings",
    "accuracy",
    "gaussian_of_generator",
    "gaussian_of_samples",
    "recipe_of",
    "train",
    "write_weights",
]

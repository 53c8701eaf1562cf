"""Training the networks of the zoo."""

from neuralcov.zoo.training.card import Card
from neuralcov.zoo.training.classify import accuracy
from neuralcov.zoo.training.fid import frechet_distance, gaussian_of, gaussian_of_generator, gaussian_of_samples
from neuralcov.zoo.training.recipe import RECIPES, Recipe, recipe_of
from neuralcov.zoo.training.run import Report, Settings, train
from neuralcov.zoo.training.weights import write_weights

__all__ = [
    "RECIPES",
    "Card",
    "Recipe",
    "Report",
    "Settings",
    "accuracy",
    "frechet_distance",
    "gaussian_of",
    "gaussian_of_generator",
    "gaussian_of_samples",
    "recipe_of",
    "train",
    "write_weights",
]

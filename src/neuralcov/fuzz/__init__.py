"""Coverage-guided search for inputs that a model gets wrong."""

from neuralcov.fuzz.campaign.result import Campaign
from neuralcov.fuzz.faults.checks import MutantBatch, SecondModel
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.fuzzer import Fuzzer
from neuralcov.fuzz.mutations import (
    Blur,
    Brightness,
    Contrast,
    Drop,
    Duplicate,
    Mutation,
    Rotation,
    Shuffle,
    Stylise,
    Substitute,
    Swap,
    image_mutations,
    kornia_mutation,
    mutation,
    neighbour_table,
    scaling,
    shear,
    style_folder,
    text_mutations,
    translation,
    typo_table,
)
from neuralcov.fuzz.schedule import Schedule
from neuralcov.fuzz.settings import FuzzSettings
from neuralcov.fuzz.validity import PixelRule, WordRule

__all__ = [
    "Blur",
    "Brightness",
    "Campaign",
    "MutantBatch",
    "Contrast",
    "Drop",
    "Duplicate",
    "Fault",
    "FuzzSettings",
    "Fuzzer",
    "Mutation",
    "PixelRule",
    "SecondModel",
    "Rotation",
    "Schedule",
    "Shuffle",
    "Stylise",
    "Substitute",
    "Swap",
    "WordRule",
    "image_mutations",
    "kornia_mutation",
    "mutation",
    "neighbour_table",
    "scaling",
    "shear",
    "style_folder",
    "text_mutations",
    "translation",
    "typo_table",
]

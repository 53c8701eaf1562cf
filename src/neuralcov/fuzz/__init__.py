"""Search for inputs that a model gets wrong."""

from neuralcov.fuzz.campaign.dataset import export_dataset
from neuralcov.fuzz.campaign.overview import overview
from neuralcov.fuzz.campaign.reader import open_campaign
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
from neuralcov.fuzz.rules import PAPER, PUBLISHED
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
    "PAPER",
    "PUBLISHED",
    "PixelRule",
    "SecondModel",
    "Rotation",
    "Schedule",
    "Shuffle",
    "Stylise",
    "Substitute",
    "Swap",
    "WordRule",
    "export_dataset",
    "image_mutations",
    "kornia_mutation",
    "mutation",
    "neighbour_table",
    "open_campaign",
    "overview",
    "scaling",
    "shear",
    "style_folder",
    "text_mutations",
    "translation",
    "typo_table",
]

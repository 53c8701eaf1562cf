"""Change inputs, batched on the device, with the parameter lists of the public tools."""

from neuralcov.fuzz.mutations.images import (
    Affine,
    Blur,
    Brightness,
    Contrast,
    Rotation,
    kornia_mutation,
    scaling,
    shear,
    translation,
)
from neuralcov.fuzz.mutations.mutation import FunctionMutation, ListedMutation, Mutation, MutationDraw, mutation
from neuralcov.fuzz.mutations.style import Stylise, style_folder
from neuralcov.fuzz.mutations.text import (
    Drop,
    Duplicate,
    Shuffle,
    Substitute,
    Swap,
    TextMutation,
    neighbour_table,
    text_mutations,
    typo_table,
)
from neuralcov.fuzz.mutations.usual import image_mutations

__all__ = [
    "Affine",
    "Blur",
    "Brightness",
    "Contrast",
    "MutationDraw",
    "Drop",
    "Duplicate",
    "FunctionMutation",
    "ListedMutation",
    "Mutation",
    "Rotation",
    "Shuffle",
    "Stylise",
    "Substitute",
    "Swap",
    "TextMutation",
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

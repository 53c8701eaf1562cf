"""Change inputs, batched on the device, with the parameter lists of the public tools."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

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
    typo_table,
)

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


def image_mutations(side: int = 32) -> list[Mutation]:
    """Return contrast, brightness, translation, scaling, rotation and blur, for pictures of ``side`` pixels.

    The lists are those of the NLC artefact, which go back to DeepTest and DeepXplore, without the entries that
    change nothing; shifts of 5 pixels are meant for 32 and grow with the side.
    """
    shift = max(1, round(5 * side / 32))
    return [
        Contrast([0.8, 1.2, 1.4, 1.6, 1.8, 2.0]),
        Brightness([10, 20, 30, 40, 50, 60, 70]),
        translation([(-shift, -shift), (-shift, 0), (0, -shift), (shift, 0), (0, shift), (shift, shift)]),
        scaling([0.8, 0.85, 0.9, 0.95]),
        Rotation([degrees for degrees in range(-30, 31) if degrees]),
        Blur(
            [("box", size) for size in (3, 4, 5, 6)]
            + [("gaussian", size) for size in (3, 5, 7)]
            + [("median", size) for size in (3, 5)]
            + [("bilateral", 9)]
        ),
    ]


def text_mutations(
    words: Sequence[str] | None = None, vectors: Tensor | None = None, *, padding: int = 0, unknown: int = 1
) -> list[Mutation]:
    """Return swap, drop, duplicate, shuffle; typos where words are given, nearby words where their vectors are.

    Args:
        words: the vocabulary, a word per token.
        vectors: ``(vocabulary, dimensions)``, such as a model's own embedding.
        padding: the token behind a text's end.
        unknown: the token of a word that is not in the vocabulary.
    """
    found: list[Mutation] = [
        Swap(padding=padding),
        Drop(padding=padding),
        Duplicate(padding=padding),
        Shuffle(padding=padding),
    ]
    if words is not None:
        found.append(Substitute("typo", typo_table(words, unknown=unknown), padding=padding))
    if vectors is not None:
        found.append(Substitute("nearby word", neighbour_table(vectors, keep=[padding, unknown]), padding=padding))
    return found

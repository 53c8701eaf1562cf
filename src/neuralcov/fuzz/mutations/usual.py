"""The usual mutations of images: the lists of the public tools, grown with the picture."""

from __future__ import annotations

from neuralcov.fuzz.mutations.images import (
    Blur,
    BlurKernel,
    Brightness,
    Contrast,
    Rotation,
    scaling,
    translation,
)
from neuralcov.fuzz.mutations.mutation import Mutation

# The side that shifts and windows of the lists are meant for.
_SIDE = 32
# Medians and bilateral filters look at every pixel of a window: larger windows would take seconds.
_WIDEST = 15

_KERNELS: tuple[BlurKernel, ...] = (
    ("box", 3),
    ("box", 4),
    ("box", 5),
    ("box", 6),
    ("gaussian", 3),
    ("gaussian", 5),
    ("gaussian", 7),
    ("median", 3),
    ("median", 5),
    ("bilateral", 9),
)


def image_mutations(side: int = _SIDE, *, identities: bool = False, border: str = "black") -> list[Mutation]:
    """Return contrast, brightness, translation, scaling, rotation and blur, for pictures of ``side`` pixels.

    The lists are those of the NLC artefact, which go back to DeepTest and DeepXplore. Shifts of 5 pixels and blur
    windows are meant for a side of 32 and grow and shrink with it.

    Args:
        side: of the pictures, the shorter one.
        identities: whether to include the forms that change nothing, as the artefact does.
        border: what surrounds pictures that are made smaller, ``"black"`` or ``"white"``.
    """
    shift = max(1, round(5 * side / _SIDE))
    shifts = [(-shift, -shift), (-shift, 0), (0, -shift), (0, 0), (shift, 0), (0, shift), (shift, shift)]
    factors = [0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    return [
        Contrast([factor for factor in factors if identities or factor != 1]),
        Brightness([10, 20, 30, 40, 50, 60, 70]),
        translation([moved for moved in shifts if identities or any(moved)]),
        scaling([0.8, 0.85, 0.9, 0.95], border),
        Rotation([degrees for degrees in range(-30, 31) if identities or degrees]),
        Blur(blur_kernels(side)),
    ]


def blur_kernels(side: int) -> list[BlurKernel]:
    """Return the kernels of the list, their windows grown with the picture, each once.

    >>> blur_kernels(8)
    [('box', 2), ('gaussian', 3), ('median', 3), ('bilateral', 3)]
    >>> blur_kernels(96)[:3], blur_kernels(96)[-2:]
    ([('box', 9), ('box', 12), ('box', 15)], [('median', 13), ('bilateral', 15)])
    """
    return list(dict.fromkeys((name, _window(name, size, side)) for name, size in _KERNELS))


def _window(name: str, size: int, side: int) -> int:
    if name == "box":
        return max(2, round(size * side / _SIDE))
    # Odd: a middle pixel, and so many on either side.
    wide = 2 * max(1, round((size - 1) / 2 * side / _SIDE)) + 1
    return wide if name == "gaussian" else min(wide, max(size, _WIDEST))

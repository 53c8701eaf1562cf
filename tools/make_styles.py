"""Draws the style images that neuralcov ships: python tools/make_styles.py src/neuralcov/fuzz/styles."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 128


def bricks() -> np.ndarray:
    """Red bricks with light joints, every other row moved by half a brick."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE]
    row = y // 16
    across = x + 16 * (row % 2)
    joint = (y % 16 < 2) | (across % 32 < 2)
    shade = rng.uniform(0.75, 1.1, (SIDE // 16 + 1, SIDE // 32 + 2))[row, across // 32]
    shade = shade * rng.normal(1, 0.06, (SIDE, SIDE))
    colours = shade[..., None] * np.array([0.62, 0.24, 0.16])
    colours[joint] = np.array([0.78, 0.75, 0.68])
    return colours


def hatching() -> np.ndarray:
    """Ink strokes in two directions on yellowish paper, denser toward one corner."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:SIDE, :SIDE]
    wobble = _noise(rng, 6)
    first = np.sin((x + y) * 0.9 + 3 * wobble) > 0.35
    second = (np.sin((x - y) * 1.1 + 3 * wobble) > 0.55) & (x + y > SIDE)
    paper = np.array([0.93, 0.89, 0.76]) * rng.normal(1, 0.02, (SIDE, SIDE))[..., None]
    ink = np.array([0.12, 0.12, 0.2])
    return np.where((first | second)[..., None], ink, paper)


def marble() -> np.ndarray:
    """Dark veins through pale green stone."""
    rng = np.random.default_rng(2)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    turbulence = sum(_noise(rng, cells) * (4 / cells) for cells in (4, 8, 16, 32))
    veins = np.abs(np.sin(6 * (x + 0.5 * y) + 4 * turbulence)) ** 0.4
    return veins[..., None] * np.array([0.82, 0.9, 0.84]) + (1 - veins[..., None]) * np.array([0.05, 0.2, 0.18])


def waves() -> np.ndarray:
    """Broad bands of blue and orange that wind around each other."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    phase = 14 * y + 2.5 * np.sin(7 * x) + 3 * _noise(rng, 3)
    colours = np.array([[0.06, 0.2, 0.5], [0.2, 0.55, 0.8], [0.95, 0.7, 0.25], [0.85, 0.35, 0.12]])
    return colours[(phase // 1.5).astype(int) % 4]


def _noise(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Smooth noise in [-1, 1]: random numbers on a coarse grid, interpolated."""
    coarse = Image.fromarray(rng.uniform(-1, 1, (cells + 1, cells + 1)).astype(np.float32))
    return np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def main() -> None:
    """Write every style as a PNG of few colours."""
    folder = Path(sys.argv[1])
    for draw in (bricks, hatching, marble, waves):
        pixels = (draw().clip(0, 1) * 255).round().astype(np.uint8)
        image = Image.fromarray(pixels).quantize(48, dither=Image.Dither.NONE)
        image.save(folder / f"{draw.__name__}.png", optimize=True)


main()

"""What plots share; matplotlib is slow to import and comes in only when something is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np


def subplots(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    """A figure and its axes, ``axes[row][column]``."""
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")


def close(figure: Any) -> None:
    """Give a figure's memory back."""
    from matplotlib import pyplot

    pyplot.close(figure)


def show_picture(axis: Any, picture: Any) -> None:
    """Draw ``(channels, height, width)`` bytes."""
    pixels = np.asarray(picture, dtype=np.uint8).transpose(1, 2, 0)
    axis.imshow(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels, cmap="gray", vmin=0, vmax=255)
    axis.axis("off")

"""Draw inputs as files a person can open: PNG of images, text of tokens, .npy of the rest; and sheets of faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.files import atomic_write, write_text
from neuralcov.fuzz.faults.fault import Fault, described, group_words, grouped
from neuralcov.fuzz.faults.replay import Shrunk
from neuralcov.fuzz.formats import InputFormat, Pixels, Tokens
from neuralcov.fuzz.mutations import Mutation

if TYPE_CHECKING:
    from PIL import Image, ImageFont

_EDGE = 6
_LINE = 13
_SMALLEST = 64
_STEPS_SHOWN = 4


def save_input(folder: Path, stem: str, stored: Tensor, input_format: InputFormat) -> Path:
    """Write one stored input under the name ``stem``, in the form that fits it."""
    if isinstance(input_format, Tokens):
        path = folder / f"{stem}.txt"
        write_text(path, input_format.text(stored) + "\n", durable=False)
        return path
    pixels = as_bytes(stored, input_format)
    if pixels is None:
        path = folder / f"{stem}.npy"
        with atomic_write(path, durable=False) as file:
            np.save(file, stored.cpu().numpy(), allow_pickle=False)
        return path
    from PIL import Image

    path = folder / f"{stem}.png"
    save_image(Image.fromarray(pixels), path)
    return path


def save_image(image: Image.Image, path: Path) -> None:
    """Write an image as PNG."""
    with atomic_write(path, durable=False) as file:
        image.save(file, "PNG")


def as_bytes(stored: Tensor, input_format: InputFormat) -> np.ndarray | None:
    """Return an image as ``(height, width)`` or ``(height, width, 3)`` bytes; ``None`` for what is no image."""
    if not isinstance(input_format, Pixels) or stored.dim() != 3 or stored.shape[0] not in (1, 3):
        return None
    pixels = stored if input_format.levels == 255 else (input_format.decode(stored) * 255).round().to(torch.uint8)
    found = pixels.permute(1, 2, 0).cpu().numpy()
    return np.ascontiguousarray(found[..., 0] if found.shape[2] == 1 else found)


def sheet(
    rows: Sequence[tuple[Sequence[Tensor], str]],
    input_format: InputFormat,
    *,
    columns: int = 4,
    title: str | None = None,
) -> Image.Image | None:
    """Draw pictures side by side with a caption below, many to a page; ``None`` where inputs are no images."""
    from PIL import Image, ImageDraw

    cells = []
    for pictures, caption in rows:
        found = [as_bytes(picture, input_format) for picture in pictures]
        if any(picture is None for picture in found):
            return None
        cells.append(
            _cell([Image.fromarray(picture).convert("RGB") for picture in found if picture is not None], caption)
        )
    if not cells:
        return None
    width = max(cell.width for cell in cells)
    height = max(cell.height for cell in cells)
    columns = min(columns, len(cells))
    lines = -(-len(cells) // columns)
    top = 2 * _EDGE + _LINE if title else 0
    page = Image.new("RGB", (columns * width, top + lines * height), "white")
    if title:
        ImageDraw.Draw(page).text((_EDGE, _EDGE), title, fill="black", font=_font())
    for number, cell in enumerate(cells):
        page.paste(cell, (number % columns * width, top + number // columns * height))
    return page


def pick_from_groups(faults: Sequence[Fault], count: int) -> list[Fault]:
    """Return so many faults, taken from the groups in turn."""
    groups = list(grouped(faults).values())
    longest = max((len(group) for group in groups), default=0)
    return [group[place] for place in range(longest) for group in groups if place < len(group)][:count]


def fault_sheet(
    shrunk: Sequence[Shrunk],
    roots: Tensor,
    input_format: InputFormat,
    mutations: Sequence[Mutation],
    *,
    classes: Sequence[str] | None = None,
    title: str | None = None,
) -> Image.Image | None:
    """Draw origin and mutant of every fault, made as small as it goes, with the classes and the mutations."""
    rows = []
    for entry in shrunk:
        words = described(entry.steps, mutations)
        lines = [group_words(entry.fault.group, classes), *words[:_STEPS_SHOWN]]
        if len(words) > _STEPS_SHOWN:
            lines[-1] = f"and {len(words) - _STEPS_SHOWN + 1} more"
        rows.append(([roots[entry.fault.root], entry.input], "\n".join(lines)))
    return sheet(rows, input_format, title=title)


def _cell(pictures: Sequence[Image.Image], caption: str) -> Image.Image:
    """Draw pictures in a row, small ones enlarged without smoothing, above their caption."""
    from PIL import Image, ImageDraw

    factor = max(1, -(-_SMALLEST // min(pictures[0].size)))
    larger = [picture.resize((picture.width * factor, picture.height * factor), 0) for picture in pictures]
    lines = caption.split("\n")
    wide = max(int(_font().getlength(line)) for line in lines)
    width = max(sum(picture.width + _EDGE for picture in larger), wide + _EDGE) + _EDGE
    height = larger[0].height + 2 * _EDGE + _LINE * len(lines)
    cell = Image.new("RGB", (width, height), "white")
    left = _EDGE
    for picture in larger:
        cell.paste(picture, (left, _EDGE))
        left += picture.width + _EDGE
    for number, line in enumerate(lines):
        place = (_EDGE, larger[0].height + _EDGE + number * _LINE)
        ImageDraw.Draw(cell).text(place, line, fill="black", font=_font())
    return cell


def _font() -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.load_default()

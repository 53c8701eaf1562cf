"""Read suites in ``.npz`` files: pictures as bytes, numbers, or texts as tokens with what is padding in them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.counted import agreeing, counted
from neuralcov.core.errors import InputError
from neuralcov.core.input_names import TAKEN, pick_columns
from neuralcov.core.memory import require_room
from neuralcov.sources.samples import Samples, require_classes
from neuralcov.tap import Batch
from neuralcov.tap.names import ID_KEYS, split_names
from neuralcov.tap.signatures import Form

_INPUTS = ("inputs", "x", "images", "input_ids")
_LABELS = ("labels", "y")
_MASK = "attention_mask"


@dataclass(frozen=True, eq=False)
class NpzSuite:
    """Hold what an ``.npz`` file gives: a loader, and a sentence on what was taken for padding."""

    loader: Iterable[Any]
    note: str | None = None


def read_npz(path: Path, batch_size: int, padding: int | None = 0) -> NpzSuite:
    """Read a suite.

    Args:
        path: the file, with an array ``inputs``, ``x`` or ``images``; or ``input_ids``, which go to the model by name,
            as do all arrays beside them. ``labels`` or ``y`` hold classes. ``lengths`` or ``attention_mask`` tell
            padding from text. ``ids``, ``id`` or ``path`` name the inputs; other arrays with a text or number for each
            input are metadata.
        batch_size: inputs at a time.
        padding: the token that fills texts up behind their end; ``None`` if no token does.
    """
    arrays = _arrays(path)
    name = next((name for name in _INPUTS if name in arrays), None)
    if name is None:
        raise InputError(f"{path}: has {', '.join(arrays) or 'nothing'}; expected an array 'inputs', 'x' or 'images'")
    inputs = arrays[name]
    if inputs.ndim == 0 or inputs.dtype.kind not in "iufb":
        raise InputError(f"{path}: {name} of type {inputs.dtype} and shape {inputs.shape}: expected a batch of numbers")
    labels = _labels(path, next((arrays[name] for name in _LABELS if name in arrays), None), len(inputs))
    if inputs.dtype == np.uint8 and inputs.ndim == 4:
        return NpzSuite(_pictures(path, inputs, labels, _names(arrays, len(inputs)), batch_size))
    # Token ids stay what they are; all other numbers are read as float32, in the byte order of this machine.
    whole = inputs.dtype.kind in "iu" and inputs.dtype.itemsize >= 4
    tensor = torch.from_numpy(inputs.astype(np.int64 if whole else np.float32))
    tokens = tensor if whole and tensor.dim() == 2 else None
    lengths, note = _lengths(path, arrays, tensor, tokens, padding, by_name=name == "input_ids")
    content: Any = _named(path, arrays, name, tensor) if name == "input_ids" else tensor
    whole_suite = Batch(content, labels, lengths, **_names(arrays, len(tensor), by_name=name == "input_ids"))
    return NpzSuite([_rows_of(whole_suite, rows) for rows in _slices(len(tensor), batch_size)], note)


def text_lengths(tokens: Tensor, padding: int) -> Tensor:
    """Count the tokens of every text up to the last that is no padding, ``(texts,)``; an empty text has one.

    >>> text_lengths(torch.tensor([[5, 0, 7, 0], [0, 0, 0, 0]]), 0)
    tensor([3, 1])
    """
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return (places * (tokens != padding)).amax(1).clamp(min=1)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        with np.load(path, allow_pickle=False) as content:
            _require_sizes(path, content.zip)
            return {name: content[name] for name in content.files}
    except (OSError, MemoryError, InputError):
        raise
    except Exception as error:
        # A damaged archive fails in whatever part of it the damage lies.
        raise InputError(f"{path}: not an .npz file of plain arrays ({error})") from error


def _require_sizes(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse arrays that say they are longer than what is stored of them, or than this machine could hold."""
    total = 0
    for entry in archive.infolist():
        if not entry.filename.endswith(".npy"):
            continue
        with archive.open(entry) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            size = math.prod(shape) * dtype.itemsize
            if not dtype.hasobject and size != entry.file_size - file.tell():
                raise InputError(
                    f"{path}: {entry.filename} says {size:,} bytes and has {entry.file_size - file.tell():,}: the file "
                    "is damaged"
                )
        # Numbers of one byte become numbers of four.
        total += math.prod(shape) * max(dtype.itemsize, 4)
    require_room(total, torch.device("cpu"), f"{path}, unpacked,", "cut it into several files")


def _labels(path: Path, labels: np.ndarray | None, count: int) -> Tensor | None:
    if labels is None:
        return None
    if labels.dtype.kind not in "iu" or labels.shape != (count,):
        raise InputError(
            f"{path}: labels of type {labels.dtype} and shape {labels.shape}: expected {count} integers, one per input"
        )
    require_classes(str(path), int(labels.max()) if count else 0)
    return torch.from_numpy(labels.astype(np.int64))


def _names(arrays: dict[str, np.ndarray], count: int, *, by_name: bool = False) -> dict[str, Any]:
    """Return ids and metadata: arrays with a text or a number for each input; if others go ``by_name``, texts only."""
    kinds = "US" if by_name else "USiufb"
    known = (*_INPUTS, *_LABELS, *TAKEN[1:], "lengths", _MASK)
    columns = {
        name: tuple(array.astype(str).tolist() if array.dtype.kind == "S" else array.tolist())
        for name, array in arrays.items()
        if name not in known and array.shape == (count,) and array.dtype.kind in kinds
    }
    _, ids, metadata = split_names(columns, Form(), columns.keys() - set(ID_KEYS))
    return {"ids": ids, "metadata": metadata}


def _pictures(
    path: Path, inputs: np.ndarray, labels: Tensor | None, names: dict[str, Any], batch_size: int
) -> Iterable[Any]:
    """Return images as bytes, which become pixels in [0, 1] as those of folders do."""
    known = torch.zeros(len(inputs), dtype=torch.int64) if labels is None else labels
    classes = tuple(str(number) for number in range(int(known.max()) + 1 if len(known) else 0))
    samples = Samples(str(path), torch.from_numpy(inputs), known, classes, **names)
    if labels is not None:
        return samples.loader(batch_size)
    whole_suite = Batch(samples.prepare(samples.pixels()), None, **names)
    return [_rows_of(whole_suite, rows) for rows in _slices(len(samples), batch_size)]


def _lengths(
    path: Path,
    arrays: dict[str, np.ndarray],
    inputs: Tensor,
    tokens: Tensor | None,
    padding: int | None,
    *,
    by_name: bool,
) -> tuple[Tensor | None, str | None]:
    """Find out how long each input is, ``None`` where nothing is padded or the model is told itself."""
    steps = inputs.shape[1] if inputs.dim() > 1 else 0
    if "lengths" in arrays:
        return _given_lengths(path, arrays["lengths"], len(inputs), steps), None
    if _MASK in arrays:
        return (None if by_name else _lengths_of_mask(path, arrays[_MASK], len(inputs), steps)), None
    if tokens is None or padding is None or not tokens.numel():
        return None, None
    lengths = text_lengths(tokens, padding)
    count = int((steps - lengths).sum())
    if not count:
        return None, None
    note = (
        f"{path}: {count:,} of {counted(tokens.numel(), 'token')} {agreeing(count, 'is', 'are')} taken "
        f"as padding ({padding} behind a text's end) and left "
        "out; --padding TOKEN names another token, --padding none keeps them all"
    )
    before = int((tokens[:, 0] == padding).sum())
    if before:
        note += (
            f"; {counted(before, 'text')} {agreeing(before, 'begins', 'begin')} with {padding}, "
            f"which is not left out: store an attention_mask beside input_ids"
        )
    return lengths, note


def _given_lengths(path: Path, lengths: np.ndarray, count: int, steps: int) -> Tensor:
    if lengths.dtype.kind not in "iu" or lengths.shape != (count,):
        raise InputError(
            f"{path}: lengths of type {lengths.dtype} and shape {lengths.shape}: expected {count} integers, one per "
            "input"
        )
    if count and not (lengths.min() >= 0 and lengths.max() <= steps):
        raise InputError(
            f"{path}: lengths from {lengths.min()} to {lengths.max()}: expected 0 to {steps}, the steps of the inputs"
        )
    return torch.from_numpy(lengths.astype(np.int64))


def _lengths_of_mask(path: Path, mask: np.ndarray, count: int, steps: int) -> Tensor:
    if mask.dtype.kind not in "iub" or mask.shape != (count, steps):
        raise InputError(
            f"{path}: {_MASK} of type {mask.dtype} and shape {mask.shape}: expected ({count}, {steps}) zeros and ones"
        )
    kept = torch.from_numpy(mask != 0)
    lengths = kept.sum(1)
    if not bool((kept == (torch.arange(steps) < lengths[:, None])).all()):
        raise InputError(
            f"{path}: {_MASK} has padding before or within a text: name the tokens input_ids, so that the model is "
            "given the mask"
        )
    return lengths


def _named(path: Path, arrays: dict[str, np.ndarray], name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Return inputs that go to the model by name, as collators of Hugging Face give them."""
    found = {name: tensor}
    for other, array in arrays.items():
        if other in (name, "lengths", *_LABELS) or (array.dtype.kind in "US" and array.shape == (len(tensor),)):
            continue  # texts name inputs
        if array.dtype.kind not in "iufb" or array.shape[:1] != (len(tensor),):
            raise InputError(
                f"{path}: {other} of type {array.dtype} and shape {array.shape}: expected {len(tensor)} rows of "
                "numbers, since it goes to the model beside input_ids"
            )
        found[other] = torch.from_numpy(array.astype(np.int64 if array.dtype.kind in "iub" else np.float32))
    return found


def _rows_of(suite: Batch, rows: slice) -> Batch:
    """Return some inputs of a whole suite."""
    inputs = suite.inputs
    return Batch(
        {name: part[rows] for name, part in inputs.items()} if isinstance(inputs, dict) else inputs[rows],
        None if suite.labels is None else suite.labels[rows],
        None if suite.lengths is None else suite.lengths[rows],
        ids=None if suite.ids is None else suite.ids[rows],
        metadata=pick_columns(suite.metadata, rows),
    )


def _slices(count: int, size: int) -> Iterable[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


def parse_padding(text: str) -> int | None:
    """Read a token, or ``none``.

    >>> parse_padding("1"), parse_padding("none")
    (1, None)
    """
    if text.lower() == "none":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"--padding {text!r}: expected a token's number, or none") from error

"""Data named on the command line, as a loader of batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neuralcov.core.errors import InputError
from neuralcov.sources.folders import image_folder
from neuralcov.sources.names import imported, split_call
from neuralcov.sources.offered import Source, offered
from neuralcov.sources.samples import Batches, Samples

_FORMS = "zoo:NAME, folder:PATH, npz:PATH, hf:PATH or package.module:factory"


@dataclass(frozen=True, eq=False)
class NamedData:
    """A loader and the name it goes by."""

    name: str
    loader: Iterable[Any]


def load_data(
    text: str, *, batch_size: int, split: str = "test", mean: tuple[float, ...] = (), std: tuple[float, ...] = ()
) -> NamedData:
    """The data that ``text`` names.

    Args:
        text: one of the forms above.
        batch_size: inputs at a time.
        split: the part of a zoo data set meant when it does not say.
        mean: per channel, subtracted from pixels in [0, 1] of images in folders or bytes.
        std: per channel, by which they are then divided.
    """
    found = _load(text, batch_size, split)
    if not mean and not std:
        return found
    if len(mean) != len(std):
        raise InputError(f"{len(mean)} means and {len(std)} deviations: expected one of each per channel")
    if not isinstance(found.loader, Batches) or offered(text.partition(":")[0]) is not None:
        raise InputError(f"data {text!r}: --mean and --std are for images in folders, or as bytes in an .npz file")
    return NamedData(found.name, replace(found.loader.samples, mean=mean, std=std).batches(batch_size))


def _load(text: str, batch_size: int, split: str) -> NamedData:
    source, colon, rest = text.partition(":")
    if not colon:
        raise InputError(f"data {text!r}: expected {_FORMS}")
    found = offered(source)
    if found is not None:
        samples = _from_source(found, text, split)
        # Padded sequences go with their lengths, so that steps which are padding are left out.
        padded = samples.lengths is not None
        loader = samples.named_batches(batch_size) if padded else samples.batches(batch_size)
        return NamedData(samples.name, loader)
    if source == "npz":
        return NamedData(text, _from_npz(Path(rest), batch_size))
    if source == "folder":
        samples = image_folder(Path(rest))
        return NamedData(text, samples.batches(batch_size))
    if source == "hf":
        return NamedData(text, _from_hub_folder(rest, batch_size))
    name, arguments = split_call(rest)
    factory = imported(source, name, "data")
    made = factory(**arguments) if callable(factory) else factory
    if not isinstance(made, Iterable):
        raise InputError(f"data {text!r} gave a {type(made).__name__}: expected a loader that yields batches")
    return NamedData(text, made)


def _from_source(source: Source, text: str, split: str) -> Samples:
    """Read ``PREFIX:NAME``, ``PREFIX:NAME:SPLIT`` or, for a copy of one's own, ``PREFIX:NAME(folder='PATH'):SPLIT``."""
    rest = text.partition(":")[2]
    call, bracket, part = rest.rpartition(")")
    if not bracket:
        call, _, part = rest.partition(":")
    name, arguments = split_call(call + bracket)
    if set(arguments) - {"folder"}:
        raise InputError(f"data {text!r}: the only argument a data set takes is folder")
    return source.data(name, part.removeprefix(":") or split, arguments.get("folder"))


def _from_npz(path: Path, batch_size: int) -> Iterable[Any]:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        content = np.load(path, allow_pickle=False)
        arrays = {name: content[name] for name in content.files}
    except (ValueError, OSError, AttributeError) as error:
        raise InputError(f"{path}: not an .npz file of plain arrays ({error})") from error
    inputs = _first_of(arrays, ("inputs", "x", "images"))
    if inputs is None:
        raise InputError(f"{path}: has {', '.join(arrays) or 'nothing'}; expected an array 'inputs', 'x' or 'images'")
    if inputs.ndim == 0 or inputs.dtype.kind not in "iufb":
        raise InputError(f"{path}: inputs of type {inputs.dtype} and shape {inputs.shape}: expected a batch of numbers")
    labels = _first_of(arrays, ("labels", "y"))
    if labels is not None and (labels.dtype.kind not in "iu" or labels.shape != inputs.shape[:1]):
        raise InputError(
            f"{path}: labels of type {labels.dtype} and shape {labels.shape}: expected {len(inputs)} integers, "
            "one per input"
        )
    targets = None if labels is None else torch.from_numpy(labels.astype(np.int64))
    if inputs.dtype == np.uint8 and inputs.ndim == 4:
        # Images as bytes, which become pixels in [0, 1] as those of folders do.
        known = torch.zeros(len(inputs), dtype=torch.int64) if targets is None else targets
        classes = tuple(str(number) for number in range(int(known.max()) + 1 if len(known) else 0))
        batches = Samples(str(path), torch.from_numpy(inputs), known, classes).batches(batch_size)
        return batches if targets is not None else [images for images, _ in batches]
    # Token ids stay what they are; all other numbers are read as float32, in the byte order of this machine.
    whole = inputs.dtype.kind in "iu" and inputs.dtype.itemsize >= 4
    tensor = torch.from_numpy(inputs.astype(np.int64 if whole else np.float32))
    starts = range(0, len(tensor), batch_size)
    if targets is None:
        return [tensor[i : i + batch_size] for i in starts]
    return [(tensor[i : i + batch_size], targets[i : i + batch_size]) for i in starts]


def _first_of(arrays: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((arrays[name] for name in names if name in arrays), None)


def _from_hub_folder(path: str, batch_size: int) -> Iterable[Any]:
    try:
        import datasets
    except ImportError as error:
        raise InputError("data of Hugging Face needs its library: pip install datasets") from error
    return datasets.load_from_disk(path).with_format("torch").iter(batch_size=batch_size)  # type: ignore[no-any-return]

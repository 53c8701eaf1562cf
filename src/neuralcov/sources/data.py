"""Read data named on the command line: as a loader of batches, or whole; folders of images among it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.arguments import require
from neuralcov.core.errors import InputError, NeuralcovError
from neuralcov.fuzz.mutations.style import IMAGE_SUFFIXES
from neuralcov.sources.names import Source, imported, offered, split_call
from neuralcov.sources.npz import read_npz
from neuralcov.sources.samples import Batches, NamedBatches, Samples
from neuralcov.tap import Batch, unpack_batch
from neuralcov.tap.names import split_names
from neuralcov.tap.signatures import Form

if TYPE_CHECKING:
    from PIL import Image

_FORMS = "zoo:NAME, folder:PATH, npz:PATH, hf:PATH or package.module:factory"
_HIGHEST_16_BIT = 65_535
# What image libraries warn of as a bomb; models take far smaller images.
_MOST_PIXELS = 89_478_485


@dataclass(frozen=True, eq=False)
class NamedData:
    """Hold a loader, the name it goes by, and what a person should know of how it was read."""

    name: str
    loader: Iterable[Any]
    note: str | None = None


def load_data(
    text: str,
    *,
    batch_size: int,
    split: str = "test",
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    padding: int | None = 0,
) -> NamedData:
    """Read the data that ``text`` names.

    Args:
        text: one of the forms above.
        batch_size: inputs at a time.
        split: the part of a zoo data set meant when it does not say.
        mean: per channel, subtracted from pixels in [0, 1] of images in folders or bytes.
        std: per channel, by which they are then divided.
        padding: the token that fills texts of an ``.npz`` file up behind their end; ``None`` if no token does.
    """
    found = _load(text, batch_size, split, padding)
    if not mean and not std:
        return found
    if len(mean) != len(std):
        raise InputError(f"{len(mean)} means and {len(std)} deviations: expected one of each per channel")
    if not isinstance(found.loader, Batches) or offered(text.partition(":")[0]) is not None:
        raise InputError(f"data {text!r}: --mean and --std are for images in folders, or as bytes in an .npz file")
    return NamedData(found.name, replace(found.loader.samples, mean=mean, std=std).loader(batch_size))


def _load(text: str, batch_size: int, split: str, padding: int | None) -> NamedData:
    source, colon, rest = text.partition(":")
    if not colon:
        raise InputError(f"data {text!r}: expected {_FORMS}")
    found = offered(source)
    if found is not None:
        samples = _from_source(found, text, split)
        # Padded sequences go with their lengths, so that steps which are padding are left out.
        padded = samples.lengths is not None
        loader = samples.named_batches(batch_size) if padded else samples.loader(batch_size)
        return NamedData(samples.name, loader)
    if source == "npz":
        suite = read_npz(Path(rest), batch_size, padding)
        return NamedData(text, suite.loader, suite.note)
    if source == "folder":
        return NamedData(text, image_folder(Path(rest)).loader(batch_size))
    if source == "hf":
        return NamedData(text, _from_hub_folder(rest, batch_size))
    return NamedData(text, _made(text, source, rest))


def _made(text: str, module: str, call: str) -> Iterable[Any]:
    """Call a factory of the user's own; what goes wrong in their code becomes one sentence."""
    name, arguments = split_call(call)
    try:
        factory = imported(module, name, "data")
        made = factory(**arguments) if callable(factory) else factory
    except NeuralcovError:
        raise
    except Exception as error:
        raise InputError(f"data {text!r} cannot be made: {_said(error)}") from error
    if not isinstance(made, Iterable):
        raise InputError(f"data {text!r} gave a {type(made).__name__}: expected a loader that yields batches")
    try:
        return SizedOwnLoader(text, made, len(made))  # type: ignore[arg-type]
    except TypeError:
        return OwnLoader(text, made)


@dataclass(frozen=True, eq=False)
class OwnLoader:
    """Serve a loader of the user's own, whose errors are told from ours."""

    name: str
    batches: Iterable[Any]

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.batches)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except NeuralcovError:
                raise
            except Exception as error:
                raise InputError(f"data {self.name!r} failed with {_said(error)}") from error
            yield batch


@dataclass(frozen=True, eq=False)
class SizedOwnLoader(OwnLoader):
    """Serve one that knows its number of batches."""

    count: int

    def __len__(self) -> int:
        return self.count


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


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


def _from_hub_folder(path: str, batch_size: int) -> Iterable[Any]:
    datasets = require("datasets", "data sets of Hugging Face")
    try:
        found = datasets.load_from_disk(path).with_format("torch")
    except Exception as error:
        raise InputError(f"data 'hf:{path}' cannot be read: {_said(error)}") from error
    return OwnLoader(f"hf:{path}", map(_with_names, found.iter(batch_size=batch_size)))


def _with_names(batch: Mapping[str, Any]) -> Batch:
    """Take texts, which name and describe inputs, out of what goes to the model."""
    inputs, ids, metadata = split_names(batch, Form())
    return Batch(inputs, batch.get("labels"), ids=ids, metadata=metadata)


def load_samples(
    text: str, *, mean: tuple[float, ...] = (), std: tuple[float, ...] = (), split: str = "test"
) -> Samples:
    """Read inputs with their labels: images as bytes or floats in [0, 1], or tokens.

    Args:
        text: as for ``load_data``.
        mean: per channel, for data that does not bring its own.
        std: per channel, likewise.
        split: the part of an offered data set meant when it does not say.
    """
    found = load_data(text, batch_size=1000, split=split)
    if isinstance(found.loader, (Batches, NamedBatches)):
        samples = found.loader.samples
    else:
        samples = _gathered(found.name, found.loader)
    if len(mean) != len(std):
        raise InputError(f"{len(mean)} means and {len(std)} deviations: expected one of each per channel")
    return replace(samples, mean=mean, std=std) if mean else samples


def choose(samples: Samples, count: int | None, seed: int) -> Samples:
    """Return so many of the samples, drawn at random; all where there are fewer."""
    if count is None or count >= len(samples):
        return samples
    rows = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))[:count]
    return samples.take(rows.sort().values)


def parse_channels(text: str | None) -> tuple[float, ...]:
    """Read numbers separated by commas.

    >>> parse_channels("0.5,0.4,0.3")
    (0.5, 0.4, 0.3)
    """
    try:
        return () if text is None else tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{text!r}: expected numbers separated by commas, one per channel") from error


def _gathered(name: str, loader: Iterable[object]) -> Samples:
    batches = [unpack_batch(item) for item in loader]
    inputs, labels = [batch.inputs for batch in batches], [batch.labels for batch in batches]
    if not inputs or not all(isinstance(part, Tensor) for part in inputs) or any(part is None for part in labels):
        raise InputError(f"data {name!r}: expected batches of (inputs, labels): fuzzing starts from known classes")
    known = torch.cat([part for part in labels if part is not None])
    classes = tuple(str(number) for number in range(int(known.max()) + 1))
    return Samples(name, torch.cat(inputs), known, classes)


def image_folder(folder: Path) -> Samples:
    """Read all images below ``folder``, whose subfolders are the classes in alphabetical order.

    Images must be of one size; grey ones are read as RGB, and those of 16 bits scaled to 8. Their ids are their paths
    below the folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder")
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    images: list[torch.Tensor] = []
    labels: list[int] = []
    ids: list[str] = []
    for label, name in enumerate(classes):
        for path in _files_below(folder / name):
            if path.suffix.lower() in IMAGE_SUFFIXES:
                images.append(_read_image(path, images[0].shape if images else None))
                labels.append(label)
                ids.append(path.relative_to(folder).as_posix())
    if not images:
        raise InputError(f"{folder}: no images in class folders; expected {folder}/CLASS/IMAGE.png")
    return Samples(str(folder), torch.stack(images), torch.tensor(labels), tuple(classes), ids=tuple(ids))


def _files_below(folder: Path) -> list[Path]:
    """Return all files below a folder; what cannot be looked into is an error, not an empty folder."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}; make it readable or remove it")

    walk = os.walk(folder, onerror=refuse, followlinks=False)
    return sorted(Path(place) / name for place, _, names in walk for name in names)


def _read_image(path: Path, expected: torch.Size | None) -> torch.Tensor:
    from PIL import Image

    if not path.is_file():
        raise InputError(f"{path}: no plain file (a pipe, a device or a dead link); remove it")
    try:
        with Image.open(path) as image:
            _require_size(path, image, expected)
            pixels = torch.from_numpy(_image_bytes(path, image)).permute(2, 0, 1)
    except InputError:
        raise
    except Exception as error:  # Decoders end in any error there is when a file is damaged.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{path}: not an image that can be read ({reason})") from error
    return pixels


def _require_size(path: Path, image: Image.Image, expected: torch.Size | None) -> None:
    """Refuse an image by what its head says, before anything is unpacked."""
    if expected is not None and (image.height, image.width) != tuple(expected[1:]):
        wanted = f"{expected[2]}×{expected[1]}"
        raise InputError(f"{path}: {image.width}×{image.height} pixels, expected {wanted} like the images before it")
    if image.width * image.height > _MOST_PIXELS:
        raise InputError(f"{path}: {image.width}×{image.height} pixels, expected at most {_MOST_PIXELS:,} in all")


def _image_bytes(path: Path, image: Image.Image) -> np.ndarray:
    """Return ``(height, width, 3)`` bytes; grey images of 16 bits are scaled, where PIL would cut them off at 255."""
    if image.mode == "F":
        raise InputError(f"{path}: pixels of mode F, expected 8 or 16 bits; save it with 8")
    if not image.mode.startswith("I"):
        return np.array(image.convert("RGB"))
    grey = np.array(image).astype(np.int64)
    if grey.min() < 0 or grey.max() > _HIGHEST_16_BIT:
        raise InputError(
            f"{path}: pixels from {grey.min()} to {grey.max()}, expected 0 to {_HIGHEST_16_BIT}; save it with 8 bits"
        )
    # 65,535 is 257 times 255.
    narrow = ((grey + 128) // 257).astype(np.uint8)
    return np.repeat(narrow[:, :, None], 3, axis=2)

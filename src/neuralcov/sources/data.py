"""Read data named on the command line, as a loader of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neuralcov.core.arguments import require
from neuralcov.core.errors import InputError, NeuralcovError
from neuralcov.sources.folders import image_folder
from neuralcov.sources.names import Source, imported, offered, split_call
from neuralcov.sources.npz import read_npz
from neuralcov.sources.samples import Batches, Samples

_FORMS = "zoo:NAME, folder:PATH, npz:PATH, hf:PATH or package.module:factory"


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
    return NamedData(found.name, replace(found.loader.samples, mean=mean, std=std).batches(batch_size))


def _load(text: str, batch_size: int, split: str, padding: int | None) -> NamedData:
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
        suite = read_npz(Path(rest), batch_size, padding)
        return NamedData(text, suite.loader, suite.note)
    if source == "folder":
        samples = image_folder(Path(rest))
        return NamedData(text, samples.batches(batch_size))
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
    return OwnLoader(f"hf:{path}", found.iter(batch_size=batch_size))

"""Write found faults as a data set with their true labels, to train on or to test with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from neuralcov.core.errors import InputError
from neuralcov.core.files import atomic_write
from neuralcov.fuzz.campaign.folder import write_errors
from neuralcov.fuzz.campaign.reader import StoredCampaign
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.faults.pictures import as_bytes, save_input

ARRAYS = "faults.npz"
_BYTE = 255


def export_dataset(campaign: StoredCampaign, to: str | os.PathLike[str], *, limit: int | None = None) -> int:
    """Write faults as ``faults.npz`` with ``inputs`` and ``labels``; pictures also as a folder per class.

    The folders are called by number and name, such as ``3-cat``, and there is one for every class, so that they are
    numbered as the model numbers them: ``folder:TO/pictures`` and ``npz:TO/faults.npz`` read them. Bytes are those of
    ordinary pictures, 0 to 255.

    Args:
        campaign: as it lies in its folder.
        to: where to; a folder that is empty or not there.
        limit: at most so many: of every seed and wrong class one, then the others.
    """
    faults = [fault for fault in _different_first(campaign.faults) if fault.label is not None][:limit]
    if not faults:
        raise InputError(f"{campaign.folder.path}: there are no faults with a known class to write")
    target = Path(to)
    with write_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise InputError(f"{target}: is not empty; name another folder, since a data set is all that lies there")
        images = [as_bytes(fault.input, campaign.input_format) for fault in faults]
        pictures = all(image is not None for image in images)
        if pictures:
            inputs = np.stack([image for image in images if image is not None])
            inputs = inputs[:, None] if inputs.ndim == 3 else inputs.transpose(0, 3, 1, 2)
        else:
            inputs = np.stack([fault.input.cpu().numpy() for fault in faults])
        labels = np.array([fault.label for fault in faults], dtype=np.int64)
        with atomic_write(target / ARRAYS) as file:
            np.savez_compressed(file, inputs=inputs, labels=labels)
        if pictures:
            _write_pictures(campaign, faults, target / "pictures")
    return len(faults)


def _write_pictures(campaign: StoredCampaign, faults: Sequence[Fault], target: Path) -> None:
    names = [str(name) for name in campaign.config.get("notes", {}).get("classes") or ()]
    count = max(len(names), 1 + max(fault.label or 0 for fault in faults))
    width = len(str(count - 1))
    folders = []
    for number in range(count):
        plain = "".join(sign if sign.isalnum() else "-" for sign in names[number]) if number < len(names) else ""
        told = "" if plain in ("", str(number)) else f"-{plain}"
        folders.append(target / f"{number:0{width}d}{told}")
        folders[-1].mkdir(parents=True, exist_ok=True)
    for fault in faults:
        save_input(folders[fault.label or 0], fault.stem, fault.input, campaign.input_format)


def _different_first(faults: Sequence[Fault]) -> list[Fault]:
    """Return the first example of every seed and wrong class, then all others."""
    seen: set[tuple[int, int | None]] = set()
    first: list[Fault] = []
    others: list[Fault] = []
    for fault in faults:
        (others if (fault.root, fault.after) in seen else first).append(fault)
        seen.add((fault.root, fault.after))
    return first + others

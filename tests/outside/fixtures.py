"""Read the numbers of other people's code."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import torch

import neuralcov as nc
from neuralcov import criteria

HERE = Path(__file__).parent


@cache
def entries(name):
    """The results in a file; they say themselves what they are."""
    return json.loads((HERE / name).read_text())["entries"]


@cache
def split_of(network, split, dtype=torch.float64):
    """Activations of a network by layer, in execution order, with labels and predictions where there are any."""
    with np.load(HERE / "activations.npz") as content:
        start = f"{network}/{split}/layers/"
        layers = {
            name.removeprefix(start): torch.from_numpy(content[name]).to(dtype)
            for name in content.files
            if name.startswith(start)
        }
        beside = {
            part: torch.from_numpy(content[f"{network}/{split}/{part}"]).long()
            for part in ("labels", "predictions")
            if f"{network}/{split}/{part}" in content.files
        }
    return layers, beside


def criterion_of(text):
    """A criterion as an entry writes it, such as ``CC(0.5, squared=True)``."""
    return eval(text, {"__builtins__": {}}, vars(criteria))


def coverage_of(network, text, classes=None, dtype=torch.float64):
    """A coverage calibrated on the training suite.

    ``classes`` names what both suites give as labels and as predictions, which an entry calls ``by``.
    """
    layers, _ = split_of(network, "train", dtype)
    coverage = nc.Coverage.of_layers({name: part.shape[1] for name, part in layers.items()}, [criterion_of(text)])
    coverage.calibrate(**batch_of(network, "train", classes, dtype=dtype))
    return coverage


def batch_of(network, split, classes=None, rows=slice(None), dtype=torch.float64):
    """Arguments for ``update`` and the like."""
    layers, beside = split_of(network, split, dtype)
    given = None if classes is None or classes not in beside else beside[classes][rows]
    return {
        "activations": {name: part[rows] for name, part in layers.items()},
        "labels": given,
        "predictions": given,
    }


def size_of(network, split):
    """How many inputs a suite has."""
    layers, _ = split_of(network, split)
    return len(next(iter(layers.values())))

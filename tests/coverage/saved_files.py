"""A state and a calibration in files, and their headers changed as by somebody who can write checksums."""

import hashlib
import json
import struct

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import neuralcov as nc
from neuralcov.core.container import canonical

INPUTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
CRITERIA = [nc.NLC(), nc.NLC(rule="all"), nc.LVC(groups=2), nc.NC(0.5), nc.KMNC(10), nc.NBC(), nc.SNAC(), nc.TKNC(2)]


def network(widths=(8, 3)):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, widths[0]), nn.ReLU(), nn.Linear(widths[0], widths[1]))


def save_both(tmp_path):
    """Return a coverage, and where it and its calibration were saved."""
    coverage = nc.Coverage(network(), CRITERIA)
    coverage.calibrate([INPUTS])
    coverage.update(INPUTS[:30])
    coverage.save(tmp_path / "suite.ncov")
    coverage.save_calibration(tmp_path / "training.ncal")
    return coverage, tmp_path / "suite.ncov", tmp_path / "training.ncal"


def rewritten(path, change, drop=()):
    """The same file with its metadata changed."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        metadata = json.loads(file.read(length))["__metadata__"]
    change(metadata)
    save_file({name: tensor for name, tensor in load_file(path).items() if name not in drop}, path, metadata)


def edit_header(path, change, drop=()):
    """The same file with its header changed by somebody who has its SHA-256 fit."""

    def edit(metadata):
        header = json.loads(metadata["header"])
        change(header)
        metadata["header"] = canonical(header)
        metadata["sha256"] = hashlib.sha256(metadata["header"].encode()).hexdigest()

    rewritten(path, edit, drop)


def first(header):
    return header["criteria"][0]

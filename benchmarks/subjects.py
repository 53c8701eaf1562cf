"""What is measured: a ResNet50 for 32×32 images, inputs, and every criterion with the settings of the tables."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

import neuralcov as nc
from neuralcov_lab import zoo

_SIDE = 32

CRITERIA = (
    nc.NC(0.75),
    nc.KMNC(100),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(10),
    nc.TKNP(50),
    nc.NLC(),
    nc.NLC(rule="all"),
    nc.LVC(),
    nc.LCC(),
    nc.CC(10),
    nc.SS(),
    nc.LSC(10),
    nc.DSC(0.1),
    nc.MDSC(10),
)
# Needs a relevance pass of its own, for which a part of the training inputs must do.
PATHS = nc.NPC()
PATH_TRAINING = 2_000
# "All in one pass": one setting of each.
TOGETHER = tuple(criterion for criterion in CRITERIA if criterion.name != "NLC(rule=all)")
# Those that look at every neuron by itself, and LCC, which has their targets.
NEURONWISE = ("NC(0.75)", "KMNC(100)", "NBC", "SNAC", "TKNC(10)", "LCC")
# All of fixed cost per input in one pass, at small batches.
TOGETHER_SMALL = "all of these and LVC"
# One criterion of each kind, for models of other precisions and memory formats.
FORMATS = {"NC(0.75)", "KMNC(100)", "TKNC(10)", "NLC", "LVC", "LCC"}
# One criterion of each way to judge a candidate.
JUDGING = {"NC(0.75)", "KMNC(100)", "TKNC(10)", "TKNP(50)", "NLC", "LVC", "LCC", "CC(10)", "SS", "DSC(0.1)"}
# The targets, as multiples of the plain forward pass of the same run: at batch 1,000; at 32, 100 and 256; in half
# precision with channels last; on wide transformers. What is not named has none.
TARGETS: dict[str, dict[str, float]] = {
    "large": dict.fromkeys(("NC(0.75)", "KMNC(100)", "NBC", "SNAC", "TKNC(10)"), 1.2)
    | {"TKNP(50)": 1.3, "NLC": 1.25, "LVC": 1.4, "LCC": 1.15, "CC(10)": 2.0, "all": 8.0}
    | dict.fromkeys(("SS", "LSC(10)", "DSC(0.1)", "MDSC(10)"), 3.0),
    "small": dict.fromkeys(NEURONWISE, 1.3) | {"NLC": 1.5, TOGETHER_SMALL: 3.0},
    "half": dict.fromkeys(NEURONWISE, 1.5) | {"NLC": 1.8},
    "wide": dict.fromkeys(NEURONWISE, 1.1),
}
# The same on a CPU, at batch 100.
CPU_TARGETS = dict.fromkeys(("NC(0.75)", "KMNC(100)", "NBC", "SNAC", "TKNC(10)", "NLC"), 1.3)


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and inputs for it, on one device. ``real`` says whether weights and images are those of CIFAR-10."""

    model: nn.Module
    training: Tensor
    inputs: Tensor
    real: bool

    @property
    def device(self) -> torch.device:
        """Where both are."""
        return self.inputs.device

    def forward(self, batch_size: int) -> None:
        """The plain forward pass that everything is compared with."""
        with torch.no_grad():
            for batch in self.inputs.split(batch_size):
                self.model(batch)


def subject(
    device: torch.device, inputs: int, training: int, weights: Path | None = None, images: Path | None = None
) -> Subject:
    """A ResNet50, with given weights and images where there are any, random ones otherwise."""
    torch.manual_seed(0)
    model = zoo.resnet50().eval()
    if weights is not None:
        model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in load_file(weights).items()})
    pixels = torch.rand(inputs, 3, _SIDE, _SIDE) if images is None else load_images(images)[:inputs].float() / 255
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)))
    ready = (pixels - mean) / std
    # Training inputs: the same images with noise, as many as asked for. Speed does not depend on what they show.
    ready = ready.to(device)
    copies = ready.repeat(-(-training // len(ready)), 1, 1, 1)[:training]
    generator = torch.Generator(device).manual_seed(1)
    noisy = copies + 0.05 * torch.randn(copies.shape, generator=generator, device=device)
    return Subject(model.to(device), noisy, ready, weights is not None)


def load_images(path: Path) -> Tensor:
    """Bytes ``(n, 3, 32, 32)``: .npy, CIFAR-10's own .bin, or a picture that shows all images edge to edge."""
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path))
    if path.suffix == ".bin":
        return torch.from_numpy(np.fromfile(path, np.uint8).reshape(-1, 3073)[:, 1:].reshape(-1, 3, _SIDE, _SIDE))
    Image.MAX_IMAGE_PIXELS = None
    with Image.open(path) as picture:
        sheet = np.array(picture.convert("RGB"))
    rows, columns = sheet.shape[0] // _SIDE, sheet.shape[1] // _SIDE
    tiles = sheet.reshape(rows, _SIDE, columns, _SIDE, 3).transpose(0, 2, 4, 1, 3)
    return torch.from_numpy(np.ascontiguousarray(tiles.reshape(-1, 3, _SIDE, _SIDE)))


def calibrated(found: Subject, criteria: tuple[Any, ...], batch_size: int = 1000) -> tuple[Any, ...]:
    """The criteria after one pass over the training inputs."""
    coverage = nc.Coverage(found.model, list(criteria))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        coverage.calibrate(found.training.split(batch_size))
    return coverage.criteria


def with_paths(found: Subject) -> Any:
    """NPC after some training inputs, which count as correctly classified."""
    coverage = nc.Coverage(found.model, [PATHS])
    with torch.no_grad():
        batches = [(part, found.model(part).argmax(1)) for part in found.training[:PATH_TRAINING].split(100)]
    coverage.calibrate(batches, progress=False)
    return coverage.criteria[0]


def measured(found: Subject, coverage: nc.Coverage, batch_size: int) -> str:
    """Assess all inputs once, from nothing; return what was recorded."""
    coverage.reset()
    with coverage.tap(), warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        for batch in found.inputs.split(batch_size):
            coverage.update(batch)
        coverage.values()
        return coverage.explain()

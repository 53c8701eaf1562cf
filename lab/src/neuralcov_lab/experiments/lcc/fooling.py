"""``lcc.fooling``: suites made to look varied that are not, under LCC and beside it other criteria."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.figures import Measure
from neuralcov_lab.experiments.lcc.images import varied
from neuralcov_lab.experiments.lcc.maps import DIRECTIONS, Cut, Map
from neuralcov_lab.experiments.lcc.orders import others, rounded
from neuralcov_lab.experiments.lcc.projections import project
from neuralcov_lab.experiments.lcc.subjects import proof_subject
from neuralcov_lab.experiments.measuring import slices

FIGURES = ("value", "relative", "off_map", "expected_off_map", "new_decisions", "next")
MOST = 1_000
TEST, DOUBLED = "test", "test, twice"


def fooling(context: ExperimentContext, subject: str, draws: int) -> dict[str, Any]:
    """Return, by suite and draw, LCC's figures and the values of other criteria."""
    found = proof_subject(context, subject)
    criteria, batch = found.learn(context, others()), context.scale.batch
    ground = Map.learn(project(criteria.run(found.batches(found.train, batch)), [DIRECTIONS]), Cut())
    size = min(MOST, len(found.test) // 2)
    suites: dict[str, list[dict[str, float]]] = {}
    for draw in range(draws):
        chosen = found.test.take(context.rows(len(found.test), size, 67, draw))
        for name, make in SUITES.items():
            if _same_as_test(name, chosen):
                continue
            inputs = make(chosen, context.generator(71, draw))
            labels = torch.zeros(len(inputs), dtype=torch.int64, device=inputs.device)
            batches = zip(torch.split(inputs, batch), torch.split(labels, batch), strict=True)
            activations = criteria.keep(batches)
            figures = Measure(ground, ground.place(project([activations], [DIRECTIONS]))).figures()
            own = {f"LCC.{figure}": rounded(getattr(figures, figure)) for figure in FIGURES}
            beside = {n: rounded(v) for n, v in criteria.values_of(slices(activations, batch)).items()}
            suites.setdefault(name, []).append({"inputs": len(inputs)} | own | beside)
    return {"suites": suites, "inputs": size, "classes": len(found.test.classes)}


def _same_as_test(name: str, samples: Samples) -> bool:
    """Return whether a suite would be the test inputs themselves, for want of what it changes."""
    return (name == "not normalised" and not samples.mean) or (
        name == "colours swapped" and samples.inputs.shape[1] == 1
    )


def _one(samples: Samples) -> Tensor:
    return samples.pixels(slice(0, 1)).expand(len(samples), -1, -1, -1)


def _scaled(samples: Samples, random: torch.Generator) -> Tensor:
    """Return one image, between dark and a hundred times too bright."""
    factors = torch.logspace(-2, 2, len(samples), device=samples.inputs.device)
    return samples.prepare(_one(samples) * factors[:, None, None, None])


def _colours(samples: Samples, random: torch.Generator) -> Tensor:
    pixels = samples.pixels()
    colour = torch.rand((*pixels.shape[:2], 1, 1), generator=random, device=pixels.device)
    return samples.prepare(colour.expand_as(pixels))


def _noise(samples: Samples, random: torch.Generator) -> Tensor:
    shape = samples.inputs.shape
    return samples.prepare(torch.rand(shape, generator=random, device=samples.inputs.device))


def _crops(samples: Samples, random: torch.Generator) -> Tensor:
    """Return parts of one image, from a third of its side on, stretched to its size."""
    image, count = _one(samples), len(samples)
    device = image.device
    size = 1 / 3 + torch.rand(count, generator=random, device=device) * 2 / 3
    centre = (1 - size)[:, None] * (2 * torch.rand((count, 2), generator=random, device=device) - 1)
    matrix = torch.zeros(count, 2, 3, device=device)
    matrix[:, 0, 0] = matrix[:, 1, 1] = size
    matrix[:, :, 2] = centre
    grid = functional.affine_grid(matrix, list(image.shape), align_corners=False)
    return samples.prepare(functional.grid_sample(image, grid, padding_mode="border", align_corners=False))


def _augmented(images: int) -> Callable[[Samples, torch.Generator], Tensor]:
    def make(samples: Samples, random: torch.Generator) -> Tensor:
        """Shift, flip, contrast and colour, all strong."""
        rows = torch.arange(len(samples), device=samples.inputs.device) % images
        pixels = samples.pixels(rows)
        flipped = torch.rand((len(pixels), 1, 1, 1), generator=random, device=pixels.device) < 0.5
        pixels = torch.where(flipped, pixels.flip(3), pixels)
        tint = 0.6 + 0.8 * torch.rand((*pixels.shape[:2], 1, 1), generator=random, device=pixels.device)
        shift = max(1, pixels.shape[3] // 8)
        return samples.prepare(varied(pixels * tint, 0.0, shift, 0.5, random.initial_seed() + 1))

    return make


def _few_copied(samples: Samples, random: torch.Generator) -> Tensor:
    rows = torch.arange(len(samples), device=samples.inputs.device) % max(1, len(samples) // 10)
    return samples.prepare(samples.pixels(rows))


def _classes(wanted: int) -> Callable[[Samples, torch.Generator], Tensor]:
    def make(samples: Samples, random: torch.Generator) -> Tensor:
        """Return inputs of some classes, repeated where they are too few."""
        order = torch.randperm(len(samples.classes), generator=random, device=random.device)
        rows = torch.isin(samples.labels, order[:wanted]).nonzero()[:, 0]
        return samples.prepare(samples.pixels(rows))

    return make


SUITES: dict[str, Callable[[Samples, torch.Generator], Tensor]] = {
    TEST: lambda samples, random: samples.prepare(samples.pixels()),
    DOUBLED: lambda samples, random: samples.prepare(samples.pixels().repeat(2, 1, 1, 1)),
    "a tenth of it, ten times": _few_copied,
    "half the classes": _classes(5),
    "one class": _classes(1),
    "one image, scaled": _scaled,
    "crops of one image": _crops,
    "constant colours": _colours,
    "uniform noise": _noise,
    "100 images, strongly augmented": _augmented(100),
    "not scaled to [0, 1]": lambda samples, random: samples.prepare(samples.pixels() * samples.levels),
    "not normalised": lambda samples, random: samples.pixels(),
    "inverted": lambda samples, random: samples.prepare(1 - samples.pixels()),
    "colours swapped": lambda samples, random: samples.prepare(samples.pixels().flip(1)),
    "upside down": lambda samples, random: samples.prepare(samples.pixels().flip(2)),
}

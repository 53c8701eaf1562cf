"""Suites of images: noisy copies, variants of one image, noise, attacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.attacks import attack
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.pools import Makers, few_of
from neuralcov_lab.experiments.suites import NORMALISED, PIXEL, NoisyCopies

# Noise of copies: those that also are ten times as many as the test set, and those at equal size only.
COPIES = ((NORMALISED, 0.1), (PIXEL, 0.2))
FURTHER = ((NORMALISED, 0.4), (PIXEL, 0.05), (PIXEL, 0.4))
BOUNDS = (0.03, 0.2)
NOISE = ("uniform noise", "normal noise", "permuted pixels")


def image_makers(
    context: ExperimentContext, model: nn.Module, test: Samples, batch: int, *, misled: bool = True
) -> Makers:
    """Return what makes suites of images.

    Args:
        context: device, seed and steps of attacks.
        model: the network, which attacks want to mislead.
        test: the test set.
        batch: inputs at a time.
        misled: whether inputs are also attacked until the network is misled, for which it must be open to tracing.
    """

    def copies(unit: str, bound: float) -> Callable[[int, int], Iterable[Any]]:
        return lambda number, count: NoisyCopies(
            few_of(context, test, number), count, bound, unit, batch, context.combined_seed(43, number)
        )

    def variant(number: int, count: int) -> Iterable[Any]:
        image = test.pixels(context.rows(len(test), 1, 31, number))
        shift = max(1, image.shape[3] // 16)
        pixels = varied(image.expand(count, -1, -1, -1), 0.05, shift, 0.2, context.combined_seed(31, number))
        return batches(test, pixels, batch)

    def noise(name: str) -> Callable[[], Iterable[Any]]:
        return lambda: batches(test, noise_images(name, test, context.generator(37)), batch)

    def attacks(rows: Tensor) -> Mapping[str, Callable[[], Iterable[Any]]]:
        chosen = test.take(rows)
        # Away from what the network says, which is what labels are only where it is right.
        chosen = replace(chosen, labels=predicted(model, chosen, batch))

        def misleading() -> Iterable[Any]:
            found = attack(model, chosen, "PGD", context.scale, context.combined_seed(41), batch=min(batch, 1000))
            return batches(chosen, found.samples.inputs, batch)

        def bounded(bound: float) -> Callable[[], Iterable[Any]]:
            return lambda: batches(
                chosen, bounded_attack(model, chosen, bound, context.scale.pgd_steps, batch, (0.0, 1.0)), batch
            )

        made = {f"PGD ε {bound:g}": bounded(bound) for bound in BOUNDS}
        return {"PGD": misleading, **made} if misled else made

    return Makers(
        {_name(unit, bound): copies(unit, bound) for unit, bound in COPIES},
        {_name(unit, bound): copies(unit, bound) for unit, bound in FURTHER},
        variant,
        {name: noise(name) for name in NOISE},
        attacks,
        (*(("PGD",) if misled else ()), *(f"PGD ε {bound:g}" for bound in BOUNDS)),
    )


def _name(unit: str, bound: float) -> str:
    return f"copies ±{bound:g} {unit}"


def noise_images(name: str, samples: Samples, random: torch.Generator) -> Tensor:
    """Return as many noise images as there are samples: uniform, normal about the mean image, or permuted pixels."""
    pixels = samples.pixels()
    if name == "uniform noise":
        return torch.rand(pixels.shape, generator=random, device=pixels.device)
    if name == "normal noise":
        white = torch.randn(pixels.shape, generator=random, device=pixels.device)
        return (pixels.mean(0) + pixels.std(0) * white).clamp(0, 1)
    flat = pixels.flatten(2)
    order = torch.rand((len(flat), 1, flat.shape[2]), generator=random, device=pixels.device).argsort(2)
    return flat.gather(2, order.expand_as(flat)).reshape(pixels.shape)


def varied(pixels: Tensor, noise: float, shift: int, contrast: float, seed: int) -> Tensor:
    """Return images shifted by up to ``shift`` pixels, with other contrast and brightness, and white noise."""
    device, count = pixels.device, len(pixels)
    random = torch.Generator(device).manual_seed(seed)
    height, width = pixels.shape[2:]

    def uniform(low: float, high: float) -> Tensor:
        drawn = torch.rand((count, 1, 1, 1), generator=random, device=device)
        return low + (high - low) * drawn

    down, right = (torch.randint(-shift, shift + 1, (count, 1), generator=random, device=device) for _ in range(2))
    rows = (torch.arange(height, device=device) + down).clamp(0, height - 1)
    columns = (torch.arange(width, device=device) + right).clamp(0, width - 1)
    each = torch.arange(count, device=device)[:, None, None, None]
    channel = torch.arange(pixels.shape[1], device=device)[None, :, None, None]
    moved = pixels[each, channel, rows[:, None, :, None], columns[:, None, None, :]]
    moved = 0.5 + (moved - 0.5) * uniform(1 - contrast, 1 + contrast) + uniform(-contrast / 2, contrast / 2)
    white = torch.randn(moved.shape, generator=random, device=device)
    return (moved + noise * white).clamp(0, 1)


@torch.no_grad()
def predicted(model: nn.Module, samples: Samples, batch: int) -> Tensor:
    """Return the classes that a network chooses."""
    return torch.cat([model(inputs).argmax(1) for inputs, _ in samples.batches(batch)])


def bounded_attack(
    model: nn.Module, chosen: Samples, bound: float, steps: int, batch: int, within: tuple[float, float] | None
) -> Tensor:
    """Return inputs moved by PGD within one bound, whether that misleads the network or not."""
    made = []
    for start in range(0, len(chosen), batch):
        rows = slice(start, start + batch)
        clean, labels = chosen.pixels(rows), chosen.labels[rows]
        moved = clean.clone()
        for _ in range(steps):
            moved.requires_grad_(True)
            with torch.enable_grad():
                loss = nn.functional.cross_entropy(model(chosen.prepare(moved)), labels, reduction="sum")
                (slope,) = torch.autograd.grad(loss, moved)
            step = moved.detach() + 2.5 * bound / steps * slope.sign()
            moved = torch.max(torch.min(step, clean + bound), clean - bound)
            moved = moved if within is None else moved.clamp(*within)
        made.append(moved.detach())
    return torch.cat(made)


def batches(samples: Samples, pixels: Tensor, size: int) -> Iterable[Any]:
    """Serve inputs made from samples, ready for the network, with labels that nothing reads."""
    labels = torch.zeros(len(pixels), dtype=torch.int64, device=pixels.device)
    return replace(samples, inputs=pixels, labels=labels).batches(size)

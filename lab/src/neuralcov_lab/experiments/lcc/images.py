"""Suites of images: noisy copies, variants of one image, noise, attacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.attacks import attack
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.pools import Drawing, Order, Plan, Pool, test_suites
from neuralcov_lab.experiments.subjects import Subject, seeds_of
from neuralcov_lab.experiments.suites import NORMALISED, PIXEL, NoisyCopies

# Noise of copies: those that also are ten times as many as the test set, and those at equal size only.
COPIES = ((NORMALISED, 0.1), (PIXEL, 0.2))
FURTHER = ((NORMALISED, 0.4), (PIXEL, 0.05), (PIXEL, 0.4))
MULTIPLE = 10


def image_plan(context: ExperimentContext, subject: Subject, draws: int) -> Plan:
    """Return the pools and orders of an image classifier."""
    draw, test, batch = Drawing(context, draws), subject.test, context.scale.batch
    total = len(test)
    sizes = (total // 10, total // 2)
    own, orders = test_suites(draw, test.labels, len(test.classes))
    for size in sizes:
        own.setdefault(f"test, {size}", draw.suite(f"test, {size}", total, size))
    moved = min(total, context.scale.attacked)
    moved_sizes = tuple(min(size, moved // 2) for size in sizes)
    for size in moved_sizes:
        own.setdefault(f"test, {size}", draw.suite(f"test, {size}", total, size))

    def copies() -> Iterator[Pool]:
        for unit, bound in COPIES:
            for number in range(draws):
                made = _copies(context, test, number, total * MULTIPLE, unit, bound)
                word = f"{unit} ±{bound:g}"
                suites: dict[str, Mapping[int, Tensor | None]] = {
                    f"x{MULTIPLE} {word}": {number: None},
                    f"x1 {word}": {number: torch.arange(total, device=context.device)},
                }
                for size in sizes:
                    suites[f"copies {word}, {size}"] = {number: draw.rows(f"copies {size}", number, total, size)}
                yield Pool(f"copies {word}, {number}", lambda made=made: made, suites)  # type: ignore[misc]
        for unit, bound in FURTHER:
            for number in range(draws):
                made = _copies(context, test, number, sizes[1], unit, bound)
                suites = {
                    f"copies {unit} ±{bound:g}, {size}": {number: torch.arange(size, device=context.device)}
                    for size in sizes
                }
                yield Pool(f"copies {unit} ±{bound:g}, {number}", lambda made=made: made, suites)  # type: ignore[misc]

    for unit, bound in COPIES:
        word = f"{unit} ±{bound:g}"
        orders += [
            Order("copies, all", "test", f"x{MULTIPLE} {word}"),
            Order("copies, all", "test", f"x1 {word}"),
            Order("copies, more", f"x{MULTIPLE} {word}", f"x1 {word}"),
        ]
    for unit, bound in (*COPIES, *FURTHER):
        orders += [Order("copies, equal", f"test, {n}", f"copies {unit} ±{bound:g}, {n}") for n in sizes]

    def variants() -> Pool:
        made = [
            one_varied(test, draw.rows("one", number, total, 1), sizes[0], context.combined_seed(31, number))
            for number in range(draws)
        ]
        rows = {
            number: torch.arange(number * sizes[0], (number + 1) * sizes[0], device=context.device)
            for number in range(draws)
        }
        pixels = torch.cat(made)
        return Pool("variants of one", lambda: batches(test, pixels, batch), {f"variants of one, {sizes[0]}": rows})

    orders.append(Order("one input", f"test, {sizes[0]}", f"variants of one, {sizes[0]}"))

    def noise() -> Iterator[Pool]:
        for name, pixels in noise_images(test, context.generator(37)).items():
            suites = {f"{name}, {size}": draw.suite(f"{name}, {size}", total, size) for size in sizes}
            yield Pool(name, lambda pixels=pixels: batches(test, pixels, batch), suites)  # type: ignore[misc]

    for name in NOISE:
        orders += [Order("noise inputs", f"test, {n}", f"{name}, {n}") for n in sizes]

    def attacks() -> Iterator[Pool]:
        chosen = test.take(draw.rows("attacked", 0, total, moved))
        for name, pixels in attacked_images(subject.model, chosen, context).items():
            suites = {f"{name}, {size}": draw.suite(f"{name}, {size}", moved, size) for size in moved_sizes}
            yield Pool(name, lambda pixels=pixels: batches(chosen, pixels, batch), suites)  # type: ignore[misc]

    for name in ATTACKS:
        orders += [Order("attacks", f"{name}, {n}", f"test, {n}") for n in moved_sizes]

    def pools() -> Iterator[Pool]:
        yield Pool("test", lambda: test.batches(batch), own)
        yield variants()
        yield from noise()
        yield from attacks()
        yield from copies()

    return Plan(pools, tuple(orders))


NOISE = ("uniform noise", "normal noise", "permuted pixels")
ATTACKS = ("PGD", "PGD ε 0.03", "PGD ε 0.2")


def noise_images(samples: Samples, random: torch.Generator) -> dict[str, Tensor]:
    """Return as many noise images as there are samples: uniform, normal about the mean image, and permuted pixels."""
    pixels = samples.pixels()
    mean, std = pixels.mean(0), pixels.std(0)
    uniform = torch.rand(pixels.shape, generator=random, device=pixels.device)
    normal = (mean + std * torch.randn(pixels.shape, generator=random, device=pixels.device)).clamp(0, 1)
    flat = pixels.flatten(2)
    order = torch.rand((len(flat), 1, flat.shape[2]), generator=random, device=pixels.device).argsort(2)
    permuted = flat.gather(2, order.expand_as(flat)).reshape(pixels.shape)
    return dict(zip(NOISE, (uniform, normal, permuted), strict=True))


def one_varied(samples: Samples, row: Tensor, count: int, seed: int) -> Tensor:
    """Return variants of one image: shifted a little, brighter or darker, with a little noise."""
    image = samples.pixels(row)
    return varied(image.expand(count, -1, -1, -1), 0.05, max(1, image.shape[3] // 16), 0.2, seed)


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


def attacked_images(model: nn.Module, chosen: Samples, context: ExperimentContext) -> dict[str, Tensor]:
    """Return attacked images: as far as needed to mislead the network, and within fixed bounds."""
    found = attack(model, chosen, "PGD", context.scale, context.combined_seed(41)).samples.inputs
    return {
        "PGD": found,
        **{
            f"PGD ε {bound:g}": bounded_attack(model, chosen, bound, context.scale.pgd_steps, context.scale.batch)
            for bound in (0.03, 0.2)
        },
    }


def bounded_attack(model: nn.Module, chosen: Samples, bound: float, steps: int, batch: int) -> Tensor:
    """Return images moved by PGD within one bound, whether that misleads the network or not."""
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
            moved = torch.max(torch.min(step, clean + bound), clean - bound).clamp(0, 1)
        made.append(moved.detach())
    return torch.cat(made)


def batches(samples: Samples, pixels: Tensor, size: int) -> Iterable[Any]:
    """Serve images made from samples, ready for the network, with labels that nothing reads."""
    labels = torch.zeros(len(pixels), dtype=torch.int64, device=pixels.device)
    return replace(samples, inputs=pixels, labels=labels).batches(size)


def _copies(
    context: ExperimentContext, samples: Samples, number: int, count: int, unit: str, bound: float
) -> NoisyCopies:
    seeds = seeds_of(context, samples, number)
    return NoisyCopies(seeds, count, bound, unit, context.scale.batch, context.combined_seed(43, number))

"""The definition of each suite: sizes, classes, bounds of the noise, words kept."""

import pytest
import torch

from neuralcov.core.errors import InputError
from neuralcov_lab import zoo
from neuralcov_lab.experiments.suites import (
    NORMALISED,
    PIXEL,
    NoisyCopies,
    ShuffledWords,
    generative_schemes,
    normal_latents,
    of_classes,
)
from neuralcov_lab.experiments.toys import toy_reviews


def colours(count=7):
    images = torch.randint(0, 256, (count, 3, 4, 4), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    labels = torch.arange(count) % 3
    return zoo.Samples("colours", images, labels, ("a", "b", "c"), mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


@pytest.mark.parametrize("unit", [PIXEL, NORMALISED])
def test_noisy_copies_have_their_size_and_labels(unit):
    seeds = colours()
    batches = list(NoisyCopies(seeds, 40, 0.1, unit, batch=16))
    assert [len(labels) for _, labels in batches] == [16, 16, 8]
    labels = torch.cat([labels for _, labels in batches])
    assert labels.tolist() == [seeds.labels[i % 7].item() for i in range(40)]


@pytest.mark.parametrize("bound", [0.05, 0.1, 0.4])
def test_noise_in_normalised_units_keeps_its_bound(bound):
    seeds = colours()
    inputs = torch.cat([inputs for inputs, _ in NoisyCopies(seeds, 70, bound, NORMALISED, batch=30)])
    clean = seeds.prepare(seeds.pixels())[torch.arange(70) % 7]
    change = (inputs - clean).abs()
    assert change.max() <= bound + 1e-5
    # White noise of deviation one is cut off nearly everywhere.
    assert (change > 0.99 * bound).float().mean() > 0.6


@pytest.mark.parametrize("bound", [0.05, 0.1, 0.4])
def test_noise_in_pixel_units_keeps_its_bound_and_the_range_of_pixels(bound):
    seeds = colours()
    inputs = torch.cat([inputs for inputs, _ in NoisyCopies(seeds, 70, bound, PIXEL, batch=30)])
    mean, std = (torch.tensor(numbers).reshape(1, 3, 1, 1) for numbers in (seeds.mean, seeds.std))
    pixels = inputs * std + mean
    assert pixels.min() >= -1e-6
    assert pixels.max() <= 1 + 1e-6
    assert (pixels - seeds.pixels()[torch.arange(70) % 7]).abs().max() <= bound + 1e-6


def test_noise_is_the_same_for_the_same_number_and_fresh_for_every_copy():
    seeds = colours(1)
    first, again, other = (
        torch.cat([inputs for inputs, _ in NoisyCopies(seeds, 6, 0.1, NORMALISED, 4, number)]) for number in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len({tuple(copy.flatten().tolist()) for copy in first}) == 6


def test_unknown_unit_is_refused():
    with pytest.raises(InputError, match="noise in 'percent' units"):
        NoisyCopies(colours(), 5, 0.1, "percent", 5)


def test_shuffled_words_are_the_same_words_with_padding_behind():
    reviews = toy_reviews(9)
    batches = list(ShuffledWords(reviews, 30, batch=12))
    tokens = torch.cat([batch["tokens"] for batch in batches])
    rows = torch.arange(30) % 9
    assert tokens.shape == (30, reviews.inputs.shape[1])
    assert torch.equal(tokens.sort(1).values, reviews.inputs[rows].sort(1).values)
    lengths = torch.cat([batch["lengths"] for batch in batches])
    assert torch.equal(lengths, reviews.lengths[rows])
    assert torch.equal((tokens != 0).sum(1), lengths)
    assert all((row[:length] != 0).all() for row, length in zip(tokens, lengths, strict=True))
    assert not torch.equal(tokens, reviews.inputs[rows])


def test_generative_schemes_have_the_papers_sizes_and_classes():
    whole = normal_latents(32_000, 10, 4, 1000, torch.Generator().manual_seed(0))
    schemes = generative_schemes(whole, 10)
    assert {name: len(suite) for name, suite in schemes.items()} == {
        "Normal": 32_000,
        "N/2": 16_000,
        "N/10": 3_200,
        "C/2": 16_000,
        "C/10": 3_200,
    }
    counts = {name: torch.bincount(suite.labels, minlength=10).tolist() for name, suite in schemes.items()}
    assert counts["Normal"] == [3200] * 10
    assert counts["N/2"] == [1600] * 10
    assert counts["N/10"] == [320] * 10
    assert counts["C/2"] == [3200] * 5 + [0] * 5
    assert counts["C/10"] == [3200] + [0] * 9


def test_rows_of_classes():
    samples = colours()
    assert of_classes(samples, torch.tensor([0, 2])).tolist() == [0, 2, 3, 5, 6]

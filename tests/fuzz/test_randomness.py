import numpy as np
import torch

from neuralcov.fuzz.randomness import choices, uniform, wave_generator


def test_waves_and_seeds_have_numbers_of_their_own():
    streams = {
        (seed, wave): tuple(wave_generator(seed, wave).random(3)) for seed in (0, 1, 2**62) for wave in (0, 1, 10**6)
    }
    assert len(set(streams.values())) == len(streams)
    assert streams == {key: tuple(wave_generator(*key).random(3)) for key in streams}


def test_choices_stay_below_the_count():
    assert choices(np.array([0.0, 0.34, np.nextafter(1, 0)]), 3).tolist() == [0, 1, 2]


def test_numbers_of_keys_are_even_and_independent():
    keys = torch.arange(20_000)
    first, second = uniform(keys, 0), uniform(keys, 1)
    assert first.min() >= 0
    assert first.max() < 1
    for numbers in (first, second):
        counts = torch.histc(numbers, 20, 0, 1)
        # A chi-square statistic of 19 degrees of freedom exceeds 44 once in a thousand times.
        assert float(((counts - 1000) ** 2 / 1000).sum()) < 44
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.03


def test_many_indices_at_once_are_the_single_ones():
    keys = torch.tensor([3, 2**47, 0])
    together = uniform(keys[:, None], torch.arange(5))
    for index in range(5):
        assert torch.equal(together[:, index], uniform(keys, index))

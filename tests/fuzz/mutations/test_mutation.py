"""Functions of the user's own as mutations: randomness from the generator, repeatable one by one."""

import numpy as np
import pytest
import torch

from neuralcov.core.errors import InputError
from neuralcov.fuzz import kornia_mutation, mutation
from neuralcov.fuzz.mutations import ListedMutation, MutationDraw


def noise(batch, generator):
    return batch + 0.1 * torch.randn(batch.shape, generator=generator)


def test_a_function_draws_from_its_generator_only():
    noisy = mutation(noise)
    images = torch.rand(5, 1, 4, 4)
    draw = MutationDraw.of_batch(noisy.choose(np.full(5, 0.3)))
    torch.manual_seed(1)
    first = noisy.apply(images, draw)
    torch.manual_seed(2)
    assert torch.equal(first, noisy.apply(images, draw))
    other = MutationDraw.of_batch(noisy.choose(np.full(5, 0.4)))
    assert not torch.equal(first, noisy.apply(images, other))


def test_what_it_did_to_one_input_can_be_repeated_alone_and_mixed():
    noisy = mutation(noise)
    images = torch.rand(6, 1, 3, 3)
    setting = noisy.choose(np.full(6, 0.7))
    together = noisy.apply(images, MutationDraw.of_batch(setting))
    alone = noisy.apply(images[4:5], MutationDraw(setting[4:5], np.array([4]), np.array([6])))
    assert torch.equal(alone[0], together[4])
    # Inputs of several batches, some drawn in the same place.
    other = noisy.choose(np.full(3, 0.2))
    second = noisy.apply(images[:3], MutationDraw.of_batch(other))
    rows = torch.cat([images[4:5], images[1:2], images[4:5]])
    draw = MutationDraw(np.array([setting[4], other[1], setting[4]]), np.array([4, 1, 4]), np.array([6, 3, 6]))
    mixed = noisy.apply(rows, draw)
    assert torch.equal(mixed[0], together[4])
    assert torch.equal(mixed[1], second[1])
    assert torch.equal(mixed[2], together[4])


def test_what_is_no_mutation_is_refused():
    with pytest.raises(InputError, match="expected a function"):
        mutation(3)
    with pytest.raises(InputError, match=r"returned \(1, 1\) for a batch of shape \(2, 1\): expected the same shape"):
        mutation(lambda batch, generator: batch[:1], name="half").apply(
            torch.zeros(2, 1), MutationDraw.of_batch(np.zeros(2))
        )
    with pytest.raises(InputError, match="at least one parameter"):
        type("Empty", (ListedMutation,), {"apply": lambda *_: None})("empty", [], geometric=False)


def test_settings_are_drawn_evenly():
    class Nothing(ListedMutation):
        def apply(self, batch, draw):
            return batch

    listed = Nothing("nothing", range(5), geometric=False)
    chances = (np.arange(1000) + 0.5) / 1000
    assert np.bincount(listed.choose(chances)).tolist() == [200] * 5
    assert listed.choose(np.array([0.0, np.nextafter(1, 0)])).tolist() == [0, 4]


def test_augmentations_of_kornia():
    augmentation = pytest.importorskip("kornia.augmentation")
    turned = kornia_mutation(augmentation.RandomRotation(30.0, p=1.0))
    noisy = kornia_mutation(augmentation.RandomGaussianNoise(std=0.1, p=1.0))
    assert (turned.name, turned.geometric, noisy.geometric) == ("RandomRotation", True, False)
    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    for found in (turned, noisy):
        setting = found.choose(np.full(5, 0.4))
        together = found.apply(images, MutationDraw.of_batch(setting))
        assert not torch.equal(together, images)
        alone = found.apply(images[3:4], MutationDraw(setting[3:4], np.array([3]), np.array([5])))
        torch.testing.assert_close(alone[0], together[3])
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(InputError, match="expected an augmentation of kornia"):
        kornia_mutation(torch.nn.Identity())

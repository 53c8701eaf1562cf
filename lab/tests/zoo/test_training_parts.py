"""Parts of training: schedules, augmentation, averages, Fréchet distance, checkpoints."""

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from neuralcov.core.errors import InputError, StateFileError
from neuralcov.fuzz.faults.quality import frechet_distance, gaussian_of
from neuralcov.sources.samples import Samples
from neuralcov_lab import zoo
from neuralcov_lab.training import gaussian_of_generator, recipe_of
from neuralcov_lab.training.augment import TrainingImages, TrainingTexts
from neuralcov_lab.training.files import read_checkpoint, write_checkpoint
from neuralcov_lab.training.generate import update_norms
from neuralcov_lab.training.recipe import Recipe
from neuralcov_lab.training.schedule import Schedule, one_cycle, plateau
from neuralcov_lab.training.tasks import optimiser_for

pytestmark = pytest.mark.usefixtures("one_thread")


@given(st.floats(0, 1), st.floats(0.01, 0.5))
def test_schedules_stay_between_nothing_and_the_highest(progress, warm_up):
    assert 0 <= one_cycle(progress, warm_up) <= 1
    assert 0 <= plateau(progress, warm_up) <= 1


def test_one_cycle_rises_then_falls():
    rates = [one_cycle(step / 100, 0.2) for step in range(101)]
    top = rates.index(max(rates))
    assert top == 20
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] == pytest.approx(0)


def test_a_schedule_runs_by_steps_or_by_minutes_whichever_is_further():
    schedule = Schedule(steps=10)
    schedule.done = 4
    assert schedule.progress == 0.4
    limited = Schedule(steps=10, seconds=100, done=4, spent=70)
    assert limited.progress == pytest.approx(0.7, abs=0.01)
    assert Schedule(steps=10, seconds=1, spent=5).progress == 1


def samples(count=6, side=8):
    inputs = torch.arange(count * 3 * side * side).remainder(251).to(torch.uint8).reshape(count, 3, side, side)
    return Samples("made", inputs, torch.arange(count) % 2, ("a", "b"))


def recipe(**changes):
    return Recipe("classify", "cifar10", 1, 4, 0.1, **changes)


def test_images_without_augmentation_are_the_images():
    made = samples()
    images = TrainingImages.of(made, recipe(), torch.device("cpu"))
    torch.testing.assert_close(images.batch(torch.tensor([4, 1])), made.pixels(torch.tensor([4, 1])))


def test_crops_are_windows_of_the_padded_image():
    made = samples(count=1)
    images = TrainingImages.of(made, recipe(crop=2), torch.device("cpu"))
    padded = nn.functional.pad(made.pixels(), [2] * 4)[0]
    windows = {padded[:, y : y + 8, x : x + 8].numpy().tobytes() for y in range(5) for x in range(5)}
    crops = {crop.numpy().tobytes() for crop in images.batch(torch.zeros(400, dtype=torch.long))}
    assert crops == windows


def test_flips_mirror_about_half_of_the_images():
    made = samples(count=1)
    batch = TrainingImages.of(made, recipe(flip=True), torch.device("cpu")).batch(torch.zeros(400, dtype=torch.long))
    plain, mirrored = made.pixels()[0], made.pixels()[0].flip(2)
    kept = [torch.equal(image, plain) for image in batch]
    assert all(keep or torch.equal(image, mirrored) for keep, image in zip(kept, batch, strict=True))
    assert 150 < sum(kept) < 250


def test_cutout_blanks_a_square_and_nothing_else():
    ones = Samples("ones", torch.full((1, 3, 16, 16), 255, dtype=torch.uint8), torch.tensor([0]), ("a",))
    batch = TrainingImages.of(ones, recipe(cutout=4), torch.device("cpu")).batch(torch.zeros(100, dtype=torch.long))
    blanked = (batch == 0).sum((1, 2, 3))
    assert torch.equal(batch, batch[:, :1].expand_as(batch))
    assert int(blanked.min()) > 0
    assert int(blanked.max()) <= 3 * 16
    assert 3 * 16 in blanked


def test_word_dropout_leaves_padding_alone():
    tokens = torch.tensor([[5, 6, 7, 0, 0]] * 500, dtype=torch.int16)
    changed = TrainingTexts(tokens, 0.3).batch(torch.arange(500))
    assert torch.equal(changed[:, 3:], torch.zeros(500, 2, dtype=torch.long))
    assert 0.25 < float((changed[:, :3] == 1).float().mean()) < 0.35
    kept = changed[:, :3] != 1
    assert torch.equal(changed[:, :3][kept], tokens[:, :3].long()[kept])


def test_gains_and_biases_do_not_decay():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    decaying, rest = optimiser_for(network, recipe(weight_decay=0.1)).param_groups
    assert [tuple(p.shape) for p in decaying["params"]] == [(4, 3, 3, 3)]
    assert decaying["weight_decay"] == 0.1
    assert len(rest["params"]) == 3
    assert rest["weight_decay"] == 0


def test_frechet_distance_agrees_with_scipys_matrix_root():
    random = np.random.default_rng(0)
    a = random.normal(size=(300, 6)) @ random.normal(size=(6, 6))
    b = random.normal(size=(200, 6)) @ random.normal(size=(6, 6)) + 1
    root = scipy.linalg.sqrtm(np.cov(a.T) @ np.cov(b.T)).real
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(np.cov(a.T) + np.cov(b.T) - 2 * root)
    ours = frechet_distance(gaussian_of(torch.from_numpy(a).split(64)), gaussian_of([torch.from_numpy(b)]))
    assert ours == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(gaussian_of([torch.from_numpy(a)]), gaussian_of([torch.from_numpy(a)])) < 1e-6


def test_frechet_distance_needs_images():
    with pytest.raises(InputError, match="1 image: a Fréchet distance needs at least 2"):
        gaussian_of([torch.zeros(1, 4)])


def test_generated_features_follow_the_seed_and_levels():
    """A feature network that shows its input: pixels arrive rounded to 256 levels."""
    seen = []

    class Shows:
        def of_pixels(self, pixels):
            seen.append(pixels)
            return pixels.flatten(1)[:, :5]

    generator = zoo.Generator(num_classes=2, noise=4, width=8)
    a, b, c = (gaussian_of_generator(Shows(), generator, 30, seed) for seed in (0, 0, 1))
    torch.testing.assert_close(a.mean, b.mean)
    assert not torch.allclose(a.mean, c.mean)
    levels = seen[0] * 255
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-3)
    assert a.count == 30


def test_updated_norms_are_those_of_the_weights():
    torch.manual_seed(0)
    generator = zoo.Generator(num_classes=2, noise=8, width=8)
    generator.norm.running_mean.fill_(99)
    update_norms(generator, 64, torch.device("cpu"))
    assert not generator.training
    assert generator.norm.momentum == 0.1
    inside = {}
    generator.norm.register_forward_hook(lambda module, inputs, output: inside.update(maps=inputs[0]))
    generator(torch.randn(512, 8), torch.arange(512) % 2)
    mean = inside["maps"].mean((0, 2, 3))
    torch.testing.assert_close(generator.norm.running_mean, mean, rtol=0.2, atol=0.05)


def test_checkpoints_of_another_training_and_damaged_ones_are_refused(tmp_path):
    path, cpu = tmp_path / "x.checkpoint", torch.device("cpu")
    write_checkpoint(path, {"training": {"seed": 1, "network": "vae"}, "epoch": 3})
    assert read_checkpoint(path, {"seed": 1}, cpu)["epoch"] == 3
    with pytest.raises(InputError, match="made with seed 1, but this training has 2"):
        read_checkpoint(path, {"seed": 2}, cpu)
    with pytest.raises(InputError, match="does not tell its data and may be of another training: delete it to start"):
        read_checkpoint(path, {"seed": 1, "data": "mnist"}, cpu)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StateFileError, match="not a checkpoint of a training, or cut short; delete it to start over"):
        read_checkpoint(path, {"seed": 1}, cpu)
    with pytest.raises(StateFileError, match="cannot be written"):
        write_checkpoint(path / "x", {})


def test_recipes_take_changes_and_refuse_nonsense():
    changed = recipe_of("resnet50").changed(epochs=3, batch_size=None, learning_rate=0.01)
    assert (changed.epochs, changed.batch_size, changed.learning_rate) == (3, 512, 0.01)
    with pytest.raises(InputError, match="learning_rate=0: expected more than 0"):
        recipe_of("resnet50").changed(None, None, 0)
    with pytest.raises(InputError, match="no recipe to train 'inception'"):
        recipe_of("inception")

"""Subjects by name: their data, their noisy copies, the stages of one network, and the real ones where they are."""

import pytest
import torch

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments import ExperimentContext, named_subjects
from neuralcov_lab.experiments.measuring import CalibratedCriteria
from neuralcov_lab.experiments.named_subjects import SUBJECTS, SubjectName, named_subject, stages
from neuralcov_lab.experiments.subjects import trained, weights_path
from neuralcov_lab.experiments.suites import SubstitutedWords
from neuralcov_lab.experiments.toys import toy_reviews
from neuralcov_lab.fetching.cache import cache_folder, is_complete
from neuralcov_lab.training import Settings, train

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
TOYS = ("transformer-toy", "mlp-toy")
# Measured after training; the weights are those of `neuralcov train` with seed 0.
ACCURACY = {
    "convnet-fashion-mnist": 0.92,
    "mlp-fashion-mnist": 0.89,
    "transformer-newsgroups": 0.79,
    "mlp-letter": 0.96,
}


def share_right(subject, batches):
    criteria = CalibratedCriteria.learn(subject.model, [nc.NC(0.75)], subject.batches(subject.train, 40))
    activations = list(criteria.run(batches))
    right = [(batch.predictions == batch.labels).double() for batch in activations]
    return float(torch.cat(right).mean())


@pytest.mark.parametrize("name", TOYS)
def test_toys_are_learnt_and_as_large_as_the_scale_says(name, context, tiny):
    subject = named_subject(context, name)
    assert (len(subject.train), len(subject.test)) == (tiny.training, tiny.test)
    assert share_right(subject, subject.batches(subject.test, 40)) > 0.8
    assert named_subject(context, name) is subject


@pytest.mark.parametrize("name", TOYS)
def test_noisy_copies_are_many_of_few_and_harder(name, context):
    subject = named_subject(context, name)
    seeds = subject.test.take(slice(0, 10))
    unchanged, changed = (subject.copies(seeds, 35, strength, 20) for strength in (0.0, 1.0))
    assert share_right(subject, changed) < share_right(subject, unchanged)
    for _ in range(2):
        labels = [item["labels"] if isinstance(item, dict) else item[1] for item in changed]
        assert torch.equal(torch.cat(labels), seeds.labels[torch.arange(35) % 10])


def test_words_are_substituted_by_their_share_and_never_padding():
    seeds = toy_reviews(20)
    copies = list(SubstitutedWords(seeds, 2000, 0.3, 500, number=1))
    tokens = torch.cat([item["tokens"] for item in copies])
    before = seeds.inputs[torch.arange(2000) % 20]
    assert torch.equal(tokens == 0, before == 0)
    assert (tokens[before != 0] >= 2).all()
    changed = (tokens != before)[before != 0].double().mean()
    # One in 38 of the words put in is the one that was there.
    assert float(changed) == pytest.approx(0.3 * 37 / 38, abs=0.02)
    again = torch.cat([item["tokens"] for item in SubstitutedWords(seeds, 2000, 0.3, 500, number=1)])
    assert torch.equal(tokens, again)


def test_rows_have_no_pixels(context):
    subject = named_subject(context, "mlp-toy")
    with pytest.raises(InputError, match="rows have no pixels"):
        subject.copies(subject.test, 5, 0.1, 5, unit="pixel")


def test_an_unknown_name_is_answered_with_the_known_ones(context):
    with pytest.raises(InputError, match="no subject 'mlp-moons': there are convnet-fashion-mnist, "):
        named_subject(context, "mlp-moons")


def test_missing_weights_say_how_to_make_them(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURALCOV_WEIGHTS", str(tmp_path))
    with pytest.raises(
        DataError, match=r"`neuralcov train mlp --data digits --seed 2 --keep 3 -o .*mlp-digits-seed2\.safetensors`"
    ):
        trained("mlp", "digits", 2, 3)


def test_stages_are_the_weights_kept_in_training(tmp_path, monkeypatch, tiny):
    monkeypatch.setenv("NEURALCOV_WEIGHTS", str(tmp_path))
    monkeypatch.setitem(SUBJECTS, "mlp-digits", SubjectName("mlp", "digits", named_subjects.IMAGES))
    for seed in (0, 1):
        train("mlp", weights_path("mlp", "digits", seed), "digits", Settings(epochs=3, seed=seed, keep=(1, 3)))
    context = ExperimentContext(tiny)
    found = list(stages(context, "mlp-digits", (0, 1), (1, 3)))
    assert [(seed, epoch) for seed, epoch, _ in found] == [(0, 1), (0, 3), (1, 1), (1, 3)]
    whole = named_subject(context, "mlp-digits")
    states = [list(subject.model.parameters()) for _, _, subject in found]
    assert all(torch.equal(a, b) for a, b in zip(states[1], whole.model.parameters(), strict=True))
    assert not torch.equal(states[0][0], states[1][0])
    assert not torch.equal(states[1][0], states[3][0])
    assert all(subject.train is whole.train for _, _, subject in found)


@pytest.mark.parametrize("name", ACCURACY)
def test_real_subjects_are_as_good_as_stated(name, context):
    behind = SUBJECTS[name]
    if not is_complete(cache_folder() / behind.data) or not weights_path(behind.network, behind.data).is_file():
        pytest.skip(f"the data or the weights of {name} are not in the cache")
    subject = named_subject(context, name)
    # A few inputs only: within three standard errors of what all of them gave.
    expected = ACCURACY[name]
    assert (
        share_right(subject, subject.batches(subject.test, 40))
        > expected - 3 * (expected * (1 - expected) / 120) ** 0.5
    )

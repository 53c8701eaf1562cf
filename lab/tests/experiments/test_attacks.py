"""Attacks succeed within their bounds, and perturbed inputs keep their prediction."""

from dataclasses import replace

import pytest
import torch

from neuralcov.core.errors import InputError
from neuralcov_lab.experiments.attacks import BOUNDS, attack, kept_prediction
from neuralcov_lab.experiments.subjects import image_subject


@pytest.fixture(scope="module")
def subject(context):
    return image_subject(context, "digits")


def predicted(subject, samples):
    with torch.no_grad():
        return subject.model(samples.prepare(samples.pixels())).argmax(1)


def test_pgd_succeeds_within_its_bounds(subject, tiny):
    clean = subject.train.take(slice(0, 40))
    found = attack(subject.model, clean, "PGD", tiny)
    assert found.success >= 0.98
    assert list(found.successes) == sorted(found.successes)
    assert found.success == pytest.approx(float((predicted(subject, found.samples) != clean.labels).float().mean()))
    change = (found.samples.inputs - clean.pixels()).abs().amax((1, 2, 3))
    assert change.max() <= BOUNDS[-1][0] + 1e-6
    assert (change <= BOUNDS[0][0] + 1e-6).float().mean() >= found.successes[0] - 1e-6
    assert found.samples.inputs.min() >= 0
    assert found.samples.inputs.max() <= 1
    assert torch.equal(found.samples.labels, clean.labels)


def test_cw_succeeds_and_leaves_alone_what_withstands(subject, tiny):
    clean = subject.train.take(slice(0, 12))
    found = attack(subject.model, clean, "CW", tiny)
    wrong = predicted(subject, found.samples) != clean.labels
    assert found.success >= 0.75
    assert found.success == pytest.approx(float(wrong.float().mean()))
    assert torch.equal(found.samples.inputs[~wrong], clean.pixels()[~wrong])


def test_attacks_are_repeatable_and_leave_the_model_as_it_was(subject, tiny):
    clean = subject.test.take(slice(0, 6))
    asked = [parameter.requires_grad for parameter in subject.model.parameters()]
    first, again = (attack(subject.model, clean, "PGD", tiny, seed=4).samples.inputs for _ in range(2))
    assert torch.equal(first, again)
    assert [parameter.requires_grad for parameter in subject.model.parameters()] == asked


def test_perturbed_inputs_keep_their_prediction_and_are_moved(subject, tiny):
    clean = subject.test.take(slice(0, 40))
    moved = attack(subject.model, clean, "PGD", tiny)
    kept = kept_prediction(subject.model, clean, moved.samples, wanted=25)
    assert len(kept) == 25
    by_content = {tuple(image.flatten().tolist()) for image in clean.pixels()}
    assert not any(tuple(image.flatten().tolist()) in by_content for image in kept.inputs)
    # Each stems from one clean input, in order, with that input's prediction.
    pixels, before, after = clean.pixels(), predicted(subject, clean), predicted(subject, kept)
    nearest = torch.cdist(kept.inputs.flatten(1), pixels.flatten(1)).argmin(1)
    assert nearest.tolist() == sorted(nearest.tolist())
    assert torch.equal(after, before[nearest])


def test_inputs_that_an_attack_left_alone_are_not_perturbed(subject, tiny):
    clean = subject.test.take(slice(0, 30))
    moved = clean.pixels().clone()
    moved[10:] = (moved[10:] + 0.05).clamp(0, 1)
    kept = kept_prediction(subject.model, clean, replace(clean, inputs=moved), wanted=30)
    with torch.no_grad():
        same = subject.model(clean.prepare(moved)).argmax(1) == subject.model(clean.prepare(clean.pixels())).argmax(1)
    assert int(same[10:].sum()) <= len(kept) <= 20


def test_unknown_attack_is_refused(subject, tiny):
    with pytest.raises(InputError, match="no attack 'FGSM'"):
        attack(subject.model, subject.test.take(slice(0, 2)), "FGSM", tiny)

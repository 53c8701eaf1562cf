"""Subjects of ``select`` by name: those of the proof, published ones, and weak ones that are trained on the spot."""

from __future__ import annotations

from torch import nn

from neuralcov_lab import zoo
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.small import train_on_the_spot
from neuralcov_lab.experiments.lcc.subjects import ProofSubject, proof_subject
from neuralcov_lab.experiments.named_subjects import IMAGES
from neuralcov_lab.experiments.selecting.published import PUBLISHED, published_subject
from neuralcov_lab.experiments.subjects import TEST_ROWS, TRAIN_ROWS, some_samples

WEAK_DIGITS, WEAK_FASHION = "digits-2-epochs", "convnet-fashion-mnist-100-steps"
_STEPS = 100


def subject_of(context: ExperimentContext, name: str) -> ProofSubject:
    """Return a subject by name, ours or a published one."""
    if name in PUBLISHED:
        return published_subject(context, name)
    if name not in (WEAK_DIGITS, WEAK_FASHION):
        return proof_subject(context, name)
    data = "digits" if name == WEAK_DIGITS else "fashion-mnist"
    whole, test = zoo.data(data, "train").to(context.device), zoo.data(data, "test")
    if name == WEAK_DIGITS:
        model: nn.Module = zoo.train_digits(epochs=2, progress=False)
    else:
        model = train_on_the_spot("convnet", whole, _STEPS, context.seed)[-1]
    return ProofSubject(
        name,
        IMAGES,
        model.to(context.device).eval(),
        some_samples(context, whole, context.scale.training, TRAIN_ROWS),
        some_samples(context, test, context.scale.test, TEST_ROWS),
    )

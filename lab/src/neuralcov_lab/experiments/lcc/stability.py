"""``lcc.stability``: the same suites on checkpoints and seeds of one network, under every criterion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from neuralcov import LCC
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.figures import Measure
from neuralcov_lab.experiments.lcc.maps import DIRECTIONS, Cut, Map
from neuralcov_lab.experiments.lcc.orders import rounded
from neuralcov_lab.experiments.lcc.projections import project
from neuralcov_lab.experiments.lcc.small import train_on_the_spot
from neuralcov_lab.experiments.lcc.subjects import ON_THE_SPOT, ProofSubject, spot_data
from neuralcov_lab.experiments.measuring import slices
from neuralcov_lab.experiments.named_subjects import IMAGES, stages
from neuralcov_lab.experiments.settings import AnyCriterion, single_settings

TEST, CLASSES, COPIED = "test", "half the classes", "a tenth of it, ten times"


def stability(
    context: ExperimentContext, subject: str, seeds: int, checkpoints: int, steps: int, part: int = 1
) -> dict[str, Any]:
    """Return, by seed and checkpoint, accuracy and what every criterion says of the same three suites.

    Args:
        context: scale, device and seed.
        subject: trained on the spot such as ``mlp-mnist``, or one whose weights were kept after every epoch.
        seeds: how many trainings.
        checkpoints: how many of each.
        steps: of a training on the spot.
        part: the share of the data that is measured, one part of so many.
    """
    if subject.partition("-")[2] in ON_THE_SPOT:
        models = _on_the_spot(context, subject, seeds, checkpoints, steps)
    else:
        models = _kept(context, subject, seeds, checkpoints)
    found, rows = [], None
    for seed, step, whole in models:
        own = whole.part(part)
        # The suites of the first model are those of all: data stay the same.
        rows = rows or _suites(context, own)
        found.append({"seed": seed, "steps": step, **_measured(context, own, rows)})
    return {"models": found, "inputs": 0 if rows is None else len(rows[TEST])}


def every_other() -> list[AnyCriterion]:
    """Return one setting of every criterion but LCC, which is worked out from projections."""
    return [criterion for criterion in single_settings() if not isinstance(criterion, LCC)]


def _suites(context: ExperimentContext, subject: ProofSubject) -> dict[str, Tensor]:
    labels, classes = subject.test.labels, len(subject.test.classes)
    half = torch.isin(labels, torch.arange(classes // 2, device=labels.device)).nonzero()[:, 0]
    tenth = context.rows(len(labels), max(1, len(half) // 10), 79).repeat(11)[: len(half)]
    return {TEST: context.rows(len(labels), len(half), 73), CLASSES: half, COPIED: tenth}


def _measured(context: ExperimentContext, subject: ProofSubject, rows: dict[str, Tensor]) -> dict[str, Any]:
    batch = context.scale.batch
    criteria = subject.learn(context, every_other())
    activations = criteria.keep(subject.batches(subject.test, batch))
    ground = Map.learn(project(criteria.run(subject.batches(subject.train, batch)), [DIRECTIONS]), Cut())
    measure = Measure(ground, ground.place(project([activations], [DIRECTIONS])))
    suites = {}
    for name, some in rows.items():
        figures = measure.figures(some)
        own = {"LCC": figures.value, "LCC.relative": figures.relative}
        values = criteria.values_of(slices(activations, batch, some))
        suites[name] = {key: rounded(value) for key, value in (own | values).items()}
    right = 0 if activations.predictions is None else int((activations.predictions == subject.test.labels).sum())
    return {"accuracy": right / len(subject.test), "suites": suites}


def _on_the_spot(
    context: ExperimentContext, subject: str, seeds: int, checkpoints: int, steps: int
) -> Iterator[tuple[int, int, ProofSubject]]:
    network, _, data = subject.partition("-")
    whole, train, test = spot_data(context, data)
    # Each checkpoint after the same multiple of the steps before, the first after a thirty-second of all.
    marks = sorted({max(1, round(steps / 32 ** (place / (checkpoints - 1)))) for place in range(checkpoints)})
    for seed in range(seeds):
        models = train_on_the_spot(network, whole, steps, context.seed_of(seed), marks)
        for mark, model in zip(marks, models, strict=True):
            yield seed, mark, ProofSubject(subject, IMAGES, model, train, test)


def _kept(
    context: ExperimentContext, subject: str, seeds: int, checkpoints: int
) -> Iterator[tuple[int, int, ProofSubject]]:
    for seed, epoch, own in stages(context, subject, range(seeds), range(1, checkpoints + 1)):
        yield seed, epoch, ProofSubject(subject, own.kind, own.model, own.train, own.test, own.most)

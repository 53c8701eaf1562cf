"""``lcc.stability``: the same suites on checkpoints and seeds of one network, under every criterion."""

from __future__ import annotations

from typing import Any

import torch

from neuralcov_lab import zoo
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.figures import Measure
from neuralcov_lab.experiments.lcc.maps import DIRECTIONS, Cut, Map
from neuralcov_lab.experiments.lcc.orders import others, rounded
from neuralcov_lab.experiments.lcc.projections import project
from neuralcov_lab.experiments.lcc.small import train_small
from neuralcov_lab.experiments.lcc.subjects import small_name
from neuralcov_lab.experiments.measuring import CalibratedCriteria, slices
from neuralcov_lab.experiments.subjects import TEST_ROWS, TRAIN_ROWS, some_samples

TEST, CLASSES, COPIED = "test", "half the classes", "a tenth of it, ten times"


def stability(context: ExperimentContext, subject: str, seeds: int, checkpoints: int, steps: int) -> dict[str, Any]:
    """Return, by seed and checkpoint, accuracy and what every criterion says of the same three suites."""
    data, kind = small_name(subject)
    scale, device = context.scale, context.device
    whole = zoo.data(data, "train").to(device)
    train = some_samples(context, whole, scale.training, TRAIN_ROWS)
    test = some_samples(context, zoo.data(data, "test"), scale.test, TEST_ROWS)
    # Each checkpoint after the same multiple of the steps before, the first after a thirty-second of all.
    marks = [round(steps * 2 ** (-5 * (1 - place / (checkpoints - 1)))) for place in range(checkpoints)]
    half = torch.isin(test.labels, torch.arange(len(test.classes) // 2, device=device)).nonzero()[:, 0]
    same = context.rows(len(test), len(half), 73)
    tenth = context.rows(len(test), max(1, len(half) // 10), 79).repeat(10)[: len(half)]
    rows = {TEST: same, CLASSES: half, COPIED: tenth}
    found = []
    for seed in range(seeds):
        for step, model in zip(marks, train_small(kind, whole, steps, context.seed_of(seed), marks), strict=True):
            criteria = CalibratedCriteria.learn(model, others(), train.batches(scale.batch), chunk=scale.chunk)
            activations = criteria.keep(test.batches(scale.batch))
            ground = Map.learn(project(criteria.run(train.batches(scale.batch)), [DIRECTIONS]), Cut())
            measure = Measure(ground, ground.place(project([activations], [DIRECTIONS])))
            suites = {}
            for name, some in rows.items():
                figures = measure.figures(some)
                own = {"LCC": figures.value, "LCC.relative": figures.relative}
                values = criteria.values_of(slices(activations, scale.batch, some))
                suites[name] = {key: rounded(value) for key, value in (own | values).items()}
            right = 0 if activations.predictions is None else int((activations.predictions == test.labels).sum())
            found.append({"seed": seed, "steps": step, "accuracy": right / len(test), "suites": suites})
    return {"models": found, "inputs": len(half)}

"""``diversity-text``: the test reviews beside copies of a few with their words shuffled."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from neuralcov_lab import zoo
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import CalibratedCriteria
from neuralcov_lab.experiments.scales import TOY, Scale
from neuralcov_lab.experiments.settings import panel_settings
from neuralcov_lab.experiments.subjects import seeds_of, trained
from neuralcov_lab.experiments.suites import ShuffledWords
from neuralcov_lab.experiments.toys import toy_lstm, toy_reviews

NAME = "diversity-text"


def plan(scale: Scale) -> list[Job]:
    """Plan the test reviews, then shuffled copies, run by run."""
    jobs = [
        Job(
            name=f"{NAME}.test",
            experiments=(NAME,),
            compute=test_reviews,
            parameters={},
            work=scale.reviews,
            rank=48,
            kind="suite lstm",
        )
    ]
    for run in range(scale.runs):
        jobs.append(
            Job(
                name=f"{NAME}.shuffled" + (f".run{run}" if run else ""),
                experiments=(NAME,),
                compute=shuffled_copies,
                parameters={"run": run},
                work=scale.reviews * max(scale.multiples),
                rank=49 if run == 0 else 80 + run,
                kind="suite lstm",
            )
        )
    return jobs


def test_reviews(context: ExperimentContext) -> dict[str, Any]:
    """Return the test reviews."""
    model, _, test = review_subject(context)
    criteria = _criteria(context)
    right = 0
    with torch.no_grad():
        for batch in test.named_batches(context.scale.batch):
            logits = model(batch["tokens"], batch["lengths"])[:, 0]
            right += int(((logits > 0) == batch["labels"].bool()).sum())
    return {
        "suites": {"test": criteria.measure(test.named_batches(context.scale.batch))},
        "training": {"inputs": criteria.training_inputs, "values": criteria.training_values},
        "accuracy": right / len(test),
        "layers": len(criteria.layout),
        "neurons": criteria.layout.neurons,
    }


def shuffled_copies(context: ExperimentContext, run: int) -> dict[str, Any]:
    """×1 and ×10, one after the other, from the same reviews."""
    _, _, test = review_subject(context)
    criteria, seeds = _criteria(context), seeds_of(context, test, run)
    suites = {}
    for multiple in context.scale.multiples:
        copies = ShuffledWords(
            seeds, multiple * len(test), context.scale.batch, context.combined_seed(19, run, multiple)
        )
        suites[f"x{multiple}"] = criteria.measure(copies, alone=context.scale.alone * len(test))
    return {"suites": suites}


def review_subject(context: ExperimentContext) -> tuple[nn.Module, zoo.Samples, zoo.Samples]:
    """Return the network that judges reviews, with its training and test reviews."""

    def make() -> tuple[nn.Module, zoo.Samples, zoo.Samples]:
        count = context.scale.reviews
        if context.scale.text == TOY:
            train, test = toy_reviews(count, 1), toy_reviews(count, 2)
            model = toy_lstm(train)
        else:
            train, test = (zoo.data(context.scale.text, split).take(slice(0, count)) for split in ("train", "test"))
            model = trained("lstm", context.scale.text)
        return model.to(context.device).eval(), train.to(context.device), test.to(context.device)

    return context.prepare("reviews", make)


def _criteria(context: ExperimentContext) -> CalibratedCriteria:
    model, train, _ = review_subject(context)
    batches, settings = train.named_batches(context.scale.batch), panel_settings(context.companion)
    return context.prepare(
        ("criteria on reviews", context.companion),
        lambda: CalibratedCriteria.learn(model, settings, batches, chunk=context.scale.chunk),
    )

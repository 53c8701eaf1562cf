"""``diversity-text``: the test reviews beside copies of a few with their words shuffled."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from neuralcov_lab import zoo
from neuralcov_lab.experiments.cells import Cell
from neuralcov_lab.experiments.panel import Panel
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.settings import table_settings
from neuralcov_lab.experiments.subjects import seeds_of, trained
from neuralcov_lab.experiments.suites import ShuffledWords
from neuralcov_lab.experiments.toys import toy_lstm, toy_reviews
from neuralcov_lab.experiments.workbench import Workbench, mixed

NAME = "diversity-text"


def plan(scale: Scale) -> list[Cell]:
    """The test reviews, then shuffled copies, run by run."""
    cells = [
        Cell(
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
        cells.append(
            Cell(
                name=f"{NAME}.shuffled" + (f".run{run}" if run else ""),
                experiments=(NAME,),
                compute=shuffled_copies,
                parameters={"run": run},
                work=scale.reviews * max(scale.multiples),
                rank=49 if run == 0 else 80 + run,
                kind="suite lstm",
            )
        )
    return cells


def test_reviews(bench: Workbench) -> dict[str, Any]:
    """The test reviews."""
    model, _, test = _subject(bench)
    panel = _panel(bench)
    right = 0
    with torch.no_grad():
        for batch in test.named_batches(bench.scale.batch):
            logits = model(batch["tokens"], batch["lengths"])[:, 0]
            right += int(((logits > 0) == batch["labels"].bool()).sum())
    return {
        "suites": {"test": panel.measure(test.named_batches(bench.scale.batch))},
        "training": {"inputs": panel.training_inputs, "values": panel.training_values},
        "accuracy": right / len(test),
        "layers": len(panel.layout),
        "neurons": panel.layout.neurons,
    }


def shuffled_copies(bench: Workbench, run: int) -> dict[str, Any]:
    """×1 and ×10, one after the other, from the same reviews."""
    _, _, test = _subject(bench)
    panel, seeds = _panel(bench), seeds_of(bench, test, run)
    suites = {}
    for multiple in bench.scale.multiples:
        copies = ShuffledWords(seeds, multiple * len(test), bench.scale.batch, mixed(bench.seed, 19, run, multiple))
        suites[f"x{multiple}"] = panel.measure(copies, alone=bench.scale.alone * len(test))
    return {"suites": suites}


def _subject(bench: Workbench) -> tuple[nn.Module, zoo.Samples, zoo.Samples]:
    def make() -> tuple[nn.Module, zoo.Samples, zoo.Samples]:
        count = bench.scale.reviews
        if bench.scale.text == "toy":
            train, test = toy_reviews(count, 1), toy_reviews(count, 2)
            model = toy_lstm(train)
        else:
            train, test = (zoo.data(bench.scale.text, split).take(slice(0, count)) for split in ("train", "test"))
            model = trained("lstm", bench.scale.text)
        return model.to(bench.device).eval(), train.to(bench.device), test.to(bench.device)

    return bench.prepare("reviews", make)


def _panel(bench: Workbench) -> Panel:
    model, train, _ = _subject(bench)
    batches = train.named_batches(bench.scale.batch)
    return bench.prepare(
        "panel of reviews", lambda: Panel.calibrated(model, table_settings(), batches, chunk=bench.scale.chunk)
    )

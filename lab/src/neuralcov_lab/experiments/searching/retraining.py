"""``fuzz-retraining``: what found faults are good for, accuracy before and after training on them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov import NC, Coverage, Fuzzer
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.searching.measures import distinct_faults
from neuralcov_lab.experiments.searching.subjects import SearchSubject, predicted, search_subject
from neuralcov_lab.experiments.selecting.shifts import STRENGTHS, corrupted

NAME = "fuzz-retraining"
FAULTS = 1000
_SEED_ROWS, _FRESH_ROWS, _TRAIN_ROWS, _CORRUPTED = 37, 41, 43, 47
_BATCH, _RATE = 128, 0.005
# Faults count this often in a pass: a few among many would be drowned.
_TIMES = 3


def plan(scale: Scale) -> list[Job]:
    """Plan a training with faults among the training inputs, beside one without."""
    network = "digits" if "digits" in scale.networks else "mobilenet_v2"
    return [
        Job(
            name=f"{NAME}.{network}" + (f".run{run}" if run else ""),
            experiments=(NAME,),
            compute=retrain,
            parameters={"network": network, "run": run},
            work=scale.training + scale.test,
            rank=150 + run,
            kind=NAME,
        )
        for run in range(scale.runs)
    ]


def retrain(context: ExperimentContext, network: str, run: int) -> dict[str, Any]:
    """Return the accuracy of a network before, after training on as before, and with faults among it.

    Faults are sought from training inputs, so that no test input is trained on; half of the test inputs give further
    faults, found in the network as it was, on which all are judged too.
    """
    subject, scale = search_subject(context, network), context.scale
    wanted = max(20, FAULTS // scale.divided) if network != "digits" else 100
    train = subject.train
    found = _found(context, subject, train, wanted, run, _SEED_ROWS)
    fresh = _found(context, subject, subject.test, wanted, run, _FRESH_ROWS)
    sets = _test_sets(context, subject)
    sets["faults from test inputs"] = fresh
    results = {"before": _accuracies(subject, subject.model, sets)}
    rows = context.rows(len(train), scale.training, *(_TRAIN_ROWS, run))
    plain = train.inputs[rows], train.labels[rows]
    for name, extra in (("without faults", None), ("with faults", found)):
        inputs, labels = plain
        if extra is not None:
            inputs = torch.cat([inputs, *[extra[0].to(inputs.device)] * _TIMES])
            labels = torch.cat([labels, *[extra[1].to(labels.device)] * _TIMES])
        results[name] = _accuracies(subject, _tuned(context, subject, inputs, labels, run), sets)
    return {"accuracy": results, "faults": len(found[0]), "trained on": len(plain[0]), "passes": _passes(context)}


def _found(
    context: ExperimentContext, subject: SearchSubject, samples: Any, wanted: int, run: int, choice: int
) -> tuple[Tensor, Tensor]:
    """Return so many distinct faults that grow from samples, and their labels."""
    seeds = samples.take(context.rows(len(samples), 2 * wanted, choice, run))
    fuzzer = Fuzzer(
        Coverage(subject.model, [NC(0.75)]),
        seeds.inputs,
        seeds.labels,
        preprocess=subject.prepare,
        guide="margin",
        levels=seeds.levels,
        wave=max(1, min(context.scale.fuzz_wave, len(seeds) // 4)),
        max_per_group=1,
        seed=context.seed_of(run),
    )
    with quiet():
        done = fuzzer.run(calls=20 * wanted, faults=wanted, progress=False)
    faults = distinct_faults(done)[:wanted]
    inputs = torch.stack([fault.input for fault in faults]).to(context.device)
    return inputs, torch.tensor([fault.label for fault in faults], device=context.device)


def _test_sets(context: ExperimentContext, subject: SearchSubject) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the test set as it is, and corrupted at two strengths by noise, contrast, brightness and blur."""
    test = subject.test
    sets = {"clean": (test.inputs, test.labels)}
    for strength in STRENGTHS.values():
        if strength:
            said = "corrupted" if strength == 1 else "corrupted more"
            sets[said] = corrupted(test.pixels(), strength, context.generator(_CORRUPTED, strength)), test.labels
    return sets


def _accuracies(subject: SearchSubject, model: nn.Module, sets: dict[str, tuple[Tensor, Tensor]]) -> dict[str, float]:
    return {
        name: float((predicted(model, subject, inputs) == labels.cpu()).double().mean())
        for name, (inputs, labels) in sets.items()
    }


def _passes(context: ExperimentContext) -> int:
    return 5 if "digits" in context.scale.networks else 1


def _tuned(context: ExperimentContext, subject: SearchSubject, inputs: Tensor, labels: Tensor, run: int) -> nn.Module:
    """Return the network after further passes by plain SGD, its rate falling to 0."""
    model = copy.deepcopy(subject.model).train()
    steps = _passes(context) * -(-len(inputs) // _BATCH)
    optimiser = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    generator = torch.Generator().manual_seed(context.seed_of(run))
    levels = subject.test.levels
    for _ in range(_passes(context)):
        order = torch.randperm(len(inputs), generator=generator)
        for rows in torch.split(order, _BATCH):
            batch = inputs[rows.to(inputs.device)]
            ready = subject.prepare(batch.float() / levels if batch.dtype == torch.uint8 else batch)
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(ready), labels[rows.to(labels.device)])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return model.eval()

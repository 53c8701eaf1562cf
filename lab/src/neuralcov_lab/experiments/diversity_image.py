"""``diversity-image``: the test suite beside noisy copies of a few images, and suites of equal size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from neuralcov import LVC, NLC, Activations
from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import CalibratedCriteria, slices
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.subjects import (
    activations_of_test,
    attacked,
    image_criteria,
    image_subject,
    path_criteria,
    perturbed,
    random_classes,
    seeds_of,
)
from neuralcov_lab.experiments.suites import NORMALISED, PIXEL, NoisyCopies, of_classes

NAME = "diversity-image"
# NPC takes more than half a minute on a GPU for these and is repeated as often as there was time for.
_PATH_RUNS = {"resnet50": 2, "mobilenet_v2": 1}


def plan(scale: Scale) -> list[Job]:
    """Plan the test suite and the paper's noise on every network first, then other noise, equal sizes, repetitions."""
    jobs = [test_job(network, scale) for network in scale.networks]
    for noise in scale.noises:
        for unit in (NORMALISED, PIXEL):
            for network in scale.networks:
                for run in range(scale.runs):
                    jobs.append(_noise_job(network, unit, noise, run, scale))
    for network in scale.networks:
        jobs.append(
            Job(
                name=f"{NAME}.{network}.equal",
                experiments=(NAME,),
                compute=equal_sizes,
                parameters={"network": network, "drawn": scale.drawn},
                work=4 * scale.draws * scale.drawn,
                rank=40,
                kind=f"equal {network}",
            )
        )
        jobs.append(
            Job(
                name=f"{NAME}.{network}.paper-batches",
                experiments=(NAME, "faults"),
                compute=paper_batches,
                parameters={"network": network, "noise": scale.noises[0]},
                # One criterion takes little more than the forward pass.
                work=0.15 * (scale.training + 2 * scale.test * max(scale.multiples)),
                rank=12,
                kind=f"batches {network}",
            )
        )
        often = min(scale.runs, _PATH_RUNS.get(network, scale.runs))
        jobs += [_path_job(network, run, scale) for run in range(often)]
    return jobs


def test_job(network: str, scale: Scale) -> Job:
    """Return the test suite of a network, which several experiments compare with."""
    return Job(
        name=f"test.{network}",
        experiments=(NAME, "faults", "faults-test", "perturbations"),
        compute=test_suite,
        parameters={"network": network},
        work=scale.test,
        rank=0,
        kind=f"suite {network}",
    )


def _noise_job(network: str, unit: str, noise: float, run: int, scale: Scale) -> Job:
    paper = noise == scale.noises[0]
    rank = (1 if unit == NORMALISED else 30) if paper else (60 if unit == NORMALISED else 65)
    again = 80 if paper else 90
    return Job(
        name=f"{NAME}.{network}.{unit}-{noise:g}" + (f".run{run}" if run else ""),
        experiments=(NAME,),
        compute=noisy_copies,
        parameters={"network": network, "unit": unit, "noise": noise, "run": run},
        work=scale.test * max(scale.multiples),
        rank=rank if run == 0 else again + run,
        kind=f"suite {network}",
    )


def _path_job(network: str, run: int, scale: Scale) -> Job:
    again = {"run": run} if run else {}
    return Job(
        name=f"{NAME}.{network}.paths" + (f".run{run}" if run else ""),
        experiments=(NAME, "faults", "faults-test", "perturbations"),
        compute=path_coverage,
        parameters={"network": network, "noises": scale.noises, "drawn": scale.drawn} | again,
        work=((4 if run else 6) + 2 * len(scale.noises)) * scale.path_inputs,
        rank=95 + run if run else 45,
        kind=f"paths {network}",
    )


def test_suite(context: ExperimentContext, network: str) -> dict[str, Any]:
    """Return the test suite, after a tenth and a half of it as well."""
    subject, criteria = image_subject(context, network), image_criteria(context, network)
    size = context.scale.batch
    marks = sorted({len(subject.test) // 10 // size * size, len(subject.test) // 2 // size * size} - {0})
    with torch.no_grad():
        right = [(subject.model(inputs).argmax(1) == labels).sum() for inputs, labels in subject.test.batches(size)]
    return {
        "suites": {"test": criteria.measure(subject.test.batches(size), marks)},
        "training": {"inputs": criteria.training_inputs, "values": criteria.training_values},
        "accuracy": int(torch.stack(right).sum()) / len(subject.test),
        "layers": len(criteria.layout),
        "neurons": criteria.layout.neurons,
    }


def noisy_copies(context: ExperimentContext, network: str, unit: str, noise: float, run: int) -> dict[str, Any]:
    """×1 and ×10 in one go: the first copies of the larger suite are the smaller one."""
    subject, criteria, scale = image_subject(context, network), image_criteria(context, network), context.scale
    counts = {f"x{multiple}": multiple * len(subject.test) for multiple in scale.multiples}
    copies = NoisyCopies(
        seeds_of(context, subject.test, run),
        max(counts.values()),
        noise,
        unit,
        scale.batch,
        context.combined_seed(3, run),
    )
    marks = sorted(counts.values())
    readings = criteria.measure(_exactly(copies, marks), marks, alone=scale.alone * len(subject.test))
    found = {reading["inputs"]: reading for reading in readings}
    return {"suites": {name: [found[count]] for name, count in counts.items()}}


def equal_sizes(context: ExperimentContext, network: str, drawn: int) -> dict[str, Any]:
    """Random subsets of suites, on their own, each pair at one size."""
    criteria = image_criteria(context, network)
    test = activations_of_test(context, network)
    return {"draws": _draws(context, network, criteria, test, drawn, context.scale.batch), **_unit(criteria)}


def _draws(
    context: ExperimentContext, network: str, criteria: CalibratedCriteria, test: Activations, drawn: int, size: int
) -> dict[str, dict[str, Any]]:
    """Return, by suite, how many inputs were drawn of it and the values of every draw.

    Every suite is larger than what is drawn of it, so that draws differ.
    """
    subject, scale = image_subject(context, network), context.scale
    classes = len(subject.test.classes)
    half = min(drawn, _smallest(context, subject.test, classes // 2))
    single = min(drawn, _smallest(context, subject.test, 1))
    draw = _Drawing(context, criteria)

    def noisy(unit: str) -> Activations:
        count = max(len(subject.test), 2 * drawn)
        return criteria.keep(NoisyCopies(seeds_of(context, subject.test, 0), count, scale.noises[0], unit, size, 5))

    def some_classes(wanted: int) -> Callable[[int], torch.Tensor]:
        return lambda number: of_classes(subject.test, random_classes(context, classes, wanted, number))

    kept = perturbed(context, network, "PGD")
    few = len(kept) // 2
    found = {
        "test": draw(test, drawn),
        "test, as many as five classes": draw(test, half),
        "five classes": draw(test, half, some_classes(classes // 2)),
        "test, as many as one class": draw(test, single),
        "one class": draw(test, single, some_classes(1)),
        "test, as many as perturbed": draw(test, few),
        "perturbed": draw(criteria.keep(kept.batches(size)), few),
        f"noisy copies, {NORMALISED}": draw(noisy(NORMALISED), drawn),
        f"noisy copies, {PIXEL}": draw(noisy(PIXEL), drawn),
    }
    moved = attacked(context, network, "train", "PGD").samples
    some = min(drawn, len(moved) // 2)
    found["PGD"] = draw(criteria.keep(moved.batches(size)), some)
    found["test, as many as PGD"] = found["test"] if some == drawn else draw(test, some)
    return found


def paper_batches(context: ExperimentContext, network: str, noise: float) -> dict[str, Any]:
    """NLC once more, fed as the paper's code feeds it: its growing rule depends on the size of batches."""
    subject, scale = image_subject(context, network), context.scale
    criteria = CalibratedCriteria.learn(
        subject.model, [NLC()], subject.train.batches(scale.batch), chunk=scale.paper_chunk
    )
    suites: dict[str, Any] = {"test": criteria.measure(subject.test.batches(scale.batch))}
    marks = sorted(multiple * len(subject.test) for multiple in scale.multiples)
    for unit in (NORMALISED, PIXEL):
        copies = NoisyCopies(
            seeds_of(context, subject.test, 0), marks[-1], noise, unit, scale.batch, context.combined_seed(3, 0)
        )
        for multiple, reading in zip(scale.multiples, criteria.measure(_exactly(copies, marks), marks), strict=True):
            suites[f"x{multiple} {unit}"] = [reading]
    moved = attacked(context, network, "train", "PGD").samples
    suites["PGD"] = criteria.measure(moved.batches(scale.batch))
    return {"suites": suites, "chunk": scale.paper_chunk}


def path_coverage(
    context: ExperimentContext, network: str, noises: Sequence[float], drawn: int, run: int = 0
) -> dict[str, Any]:
    """NPC, after a part of the training data only, since relevance is costly; in the first run also at equal sizes."""
    subject, criteria, scale = image_subject(context, network), path_criteria(context, network), context.scale
    size, count = min(scale.batch, 500), scale.path_inputs
    seeds = seeds_of(context, subject.test, run)
    part = subject.test.take(slice(0, count))
    suites: dict[str, Any] = {"test": criteria.measure(part.batches(size))}
    for noise in noises:
        for unit in (NORMALISED, PIXEL):
            # ×1 has as many copies as there are test inputs here; ×10 would take ten times as long and is left out.
            copies = NoisyCopies(seeds, len(part), noise, unit, size, 5 + run)
            suites[f"x1 {unit} {noise:g}"] = criteria.measure(copies)
    for name, split in (("PGD", "train"), ("PGD test", "test")):
        moved = attacked(context, network, split, "PGD", run=run).samples
        suites[name] = criteria.measure(moved.take(slice(0, count)).batches(size))
    suites["AP PGD"] = criteria.measure(perturbed(context, network, "PGD", run=run).batches(size))
    found: dict[str, Any] = {
        "suites": suites,
        "training": {"inputs": criteria.training_inputs, "values": criteria.training_values},
        "left out": f"x{max(scale.multiples)}",
    }
    if run == 0:
        found["draws"] = _draws(context, network, criteria, criteria.keep(subject.test.batches(size)), drawn, size)
    return found


class _Drawing:
    """Values of random subsets of a suite."""

    def __init__(self, context: ExperimentContext, criteria: CalibratedCriteria) -> None:
        self._context, self._criteria = context, criteria

    def __call__(
        self, suite: Activations, size: int, within: Callable[[int], torch.Tensor] | None = None
    ) -> dict[str, Any]:
        scale = self._context.scale
        values = []
        for number in range(scale.draws):
            rows = torch.arange(suite.size, device=suite.device) if within is None else within(number)
            chosen = rows[self._context.rows(len(rows), size, 13, number)]
            values.append(self._criteria.values_of(slices(suite, scale.batch, chosen)))
        return {"inputs": min(size, suite.size), "values": values}


def _smallest(context: ExperimentContext, samples: Samples, wanted: int) -> int:
    """Return how many inputs every draw of so many classes has at least."""
    drawn = (random_classes(context, len(samples.classes), wanted, draw) for draw in range(context.scale.draws))
    return min(len(of_classes(samples, classes)) for classes in drawn)


def _exactly(copies: NoisyCopies, counts: list[int]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return the same batches, cut where a count is reached."""
    seen = 0
    for inputs, labels in copies:
        ends = [count - seen for count in counts if seen < count < seen + len(labels)]
        for start, stop in zip([0, *ends], [*ends, len(labels)], strict=True):
            yield inputs[start:stop], labels[start:stop]
        seen += len(labels)


def _unit(criteria: CalibratedCriteria) -> dict[str, float]:
    """Return what LVC's relative value divides by, where LVC takes part."""
    volumes = [float(c.learnt.reference_volume) for c in criteria.criteria if isinstance(c, LVC)]
    return {"unit of LVC": volumes[0]} if volumes else {}

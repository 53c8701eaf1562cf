"""Assessing inputs: every criterion alone, all in one pass, calibration, and the naive form of each."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import neuralcov as nc
from benchmarks import naive
from benchmarks.subjects import PATHS, TOGETHER, Subject, calibrated, measured
from benchmarks.timing import Timing, peak_memory, timed


def assess(found: Subject, criteria: tuple[Any, ...], batch_size: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Seconds and ratios of each criterion alone, and of all together."""
    plain = timed(lambda: found.forward(batch_size), found.device, repeats)
    rows: dict[str, Any] = {}
    names = {criterion.name for criterion in TOGETHER}
    one_pass = [(criterion.name, (criterion,)) for criterion in criteria]
    if len(criteria) > 1:
        one_pass.append(("all", tuple(criterion for criterion in criteria if criterion.name in names)))
    for name, chosen in one_pass:
        coverage, said = nc.Coverage(found.model, list(chosen)), [""]
        # Once for each coverage, usually while calibrating.
        coverage.probe(found.inputs[:batch_size])

        def run(coverage: nc.Coverage = coverage, said: list[str] = said) -> None:
            said[:] = [measured(found, coverage, batch_size)]

        # The first run warms up, and tells of memory.
        peak = peak_memory(run, found.device)
        timing = timed(run, found.device, repeats, 0 if peak is not None else 1)
        rows[name] = {
            "seconds": timing.median,
            "fastest": timing.fastest,
            "slowest": timing.slowest,
            "ratio": timing.median / plain.median,
            "peak bytes": peak,
            "explain": said.pop(),
        }
        gc.collect()
        yield {"inputs": len(found.inputs), "size": batch_size, "forward seconds": plain.median, "criteria": rows}


def calibration(found: Subject, criteria: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """One pass over the training inputs, for groups of criteria that learn the same."""

    def forward() -> None:
        with torch.no_grad():
            for batch in found.training.split(1000):
                found.model(batch)

    plain = timed(forward, found.device, 1)
    kinds = {
        "ranges (KMNC, NBC, SNAC)": {"KMNC(100)", "NBC", "SNAC"},
        "moments (LVC)": {"LVC"},
        "traces (LSC, DSC)": {"LSC(10)", "DSC(0.1)"},
        "traces and factors (MDSC)": {"MDSC(10)"},
        "everything": {criterion.name for criterion in criteria},
    }
    rows = {}
    for kind, names in kinds.items():
        chosen = tuple(type(c)(**c.parameters) for c in criteria if c.name in names)
        timing = timed(lambda chosen=chosen: calibrated(found, chosen), found.device, 1, 0)
        rows[kind] = {"seconds": timing.median, "ratio": timing.median / plain.median}
        gc.collect()
        yield {"inputs": len(found.training), "forward seconds": plain.median, "kinds": rows}


def naive_forms(found: Subject, batch_size: int, few: int) -> Iterator[dict[str, Any]]:
    """The naive form of each criterion on its own forward passes; slow ones on a few inputs, scaled up."""
    device = found.device
    learnt = naive.activations(found.model, found.training[:batch_size])
    ranges = [(a.min(0).values, a.max(0).values) for a in learnt]
    size = min(2000, len(found.training))
    parts = [torch.cat(naive.activations(found.model, b), 1) for b in found.training[:size].split(batch_size)]
    traces = torch.cat(parts)
    classes = torch.cat([part[:, -10:].argmax(1) for part in parts])
    covariances = [torch.cov(a.double().T, correction=0) for a in learnt]

    def predicted(layers: list[Tensor]) -> Tensor:
        return layers[-1].argmax(1)

    forms: dict[str, tuple[Callable[[Any], float], int]] = {
        "NC(0.75)": (naive.nc, len(found.inputs)),
        "KMNC(100)": (lambda b: naive.kmnc(b, ranges), len(found.inputs)),
        "NBC": (lambda b: naive.nbc(b, ranges), len(found.inputs)),
        "SNAC": (lambda b: naive.snac(b, ranges), len(found.inputs)),
        "TKNC(10)": (naive.tknc, len(found.inputs)),
        "TKNP(50)": (naive.tknp, few),
        "NLC": (naive.nlc, len(found.inputs)),
        "CC(10)": (naive.cc, few),
        "LSC(10)": (lambda b: naive.lsc(b, traces, classes, predicted), few),
        "DSC(0.1)": (lambda b: naive.dsc(b, traces, classes, predicted), few),
        "LVC": (lambda b: naive.lvc(b, covariances), len(found.inputs)),
        "SS": (naive.ss, few),
    }
    if device.type == "cuda":
        # One covariance for all classes: each has the square of the neurons, 5.6 GB, which a CPU would be long about.
        fits = naive.mdsc_fits(traces, torch.zeros_like(classes))
        forms["MDSC(10)"] = (lambda b: naive.mdsc(b, fits, lambda layers: torch.zeros_like(predicted(layers))), few)
    rows = {}
    for name, (form, inputs) in forms.items():
        inputs = min(inputs, len(found.inputs))

        def run(form: Callable[[Any], float] = form, inputs: int = inputs) -> float:
            chosen = found.inputs[:inputs].split(min(batch_size, inputs))
            return form(naive.activations(found.model, batch) for batch in chosen)

        rows[name] = _naively(timed(run, device, 1, 0), inputs)
        note = f"LSC, DSC and MDSC against {size} training traces only, MDSC of one class"
        yield {"batch size": batch_size, "forms": rows, "note": note}
    rows[PATHS.name] = _naively(timed(_naive_paths(found, few), device, 1, 0), few)
    yield {"batch size": batch_size, "forms": rows, "note": note}


def _naively(timing: Timing, inputs: int) -> dict[str, float]:
    return {"inputs": inputs, "seconds": timing.median, "seconds per 10,000": timing.median * 1e4 / inputs}


def _naive_paths(found: Subject, few: int) -> Callable[[], float]:
    """NPC with a relevance pass for each input and paths as sets; some training inputs stand for abstract paths."""
    coverage = nc.Coverage(found.model, [PATHS])

    def explained(inputs: Tensor) -> Iterator[tuple[list[Tensor], Tensor]]:
        with coverage.tap():
            for one in inputs.split(1):
                batch = coverage.run(one)[0]
                assert batch.relevance is not None
                assert batch.predictions is not None
                yield list(batch.relevance.values()), batch.predictions

    abstract: dict[int, list[set[int]]] = {}
    for relevance, label in explained(found.training[:few]):
        abstract.setdefault(int(label), []).append(naive.path_of([layer[0] for layer in relevance]))
    some = {label: paths[: PATHS.clusters] for label, paths in abstract.items()}
    return lambda: naive.npc(explained(found.inputs[:few]), some)


def formats(found: Subject, criteria: tuple[Any, ...], batch_size: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Some criteria on the same model in other precisions and memory formats, each beside its own forward pass."""
    rows: dict[str, Any] = {}
    # Half precision is for GPUs: on a CPU the model alone takes minutes.
    precisions = (torch.float32, torch.float16, torch.bfloat16) if found.device.type == "cuda" else (torch.float32,)
    kinds = [
        (precision, layout) for precision in precisions for layout in (torch.contiguous_format, torch.channels_last)
    ]
    for precision, layout in kinds:
        model: Any = copy.deepcopy(found.model)  # its type stubs know no memory format
        other = Subject(
            model.to(precision).to(memory_format=layout),
            found.training[:0],
            found.inputs.to(precision).contiguous(memory_format=layout),
            found.real,
        )
        plain = timed(lambda other=other: other.forward(batch_size), found.device, repeats)
        name = str(precision).removeprefix("torch.") + (", channels last" if layout is torch.channels_last else "")
        rows[name] = {"forward seconds": plain.median, "criteria": {}}
        for criterion in criteria:
            coverage = nc.Coverage(other.model, [criterion])
            coverage.probe(other.inputs[:batch_size])

            def run(coverage: nc.Coverage = coverage, other: Subject = other) -> object:
                return measured(other, coverage, batch_size)

            timing = timed(run, found.device, repeats)
            rows[name]["criteria"][criterion.name] = {"seconds": timing.median, "ratio": timing.median / plain.median}
            yield {"batch size": batch_size, "inputs": len(found.inputs), "formats": rows}


def agreement(found: Subject, criteria: tuple[Any, ...], inputs: int) -> Iterator[dict[str, Any]]:
    """Values of the same activations' criteria on this device and on the CPU, both from the same outputs."""
    coverage = nc.Coverage(found.model, [nc.NC()])
    with coverage.tap():
        parts = [coverage.run(b, predictions=False)[0] for b in found.inputs[:inputs].split(100)]
        training = [coverage.run(b, predictions=False)[0] for b in found.training[:inputs].split(100)]
    rows = {}
    for criterion in criteria:
        values = []
        for device in (found.device, torch.device("cpu")):
            bare = nc.Coverage.of_layers(
                parts[0].layout.widths, [type(criterion)(**criterion.parameters)], device=device
            )
            moved, learnt = ([_moved(batch, device) for batch in some] for some in (parts, training))
            if criterion.learns:
                bare.calibrate(activations=learnt)
            for batch in moved:
                bare.update(activations=batch)
            values.append(bare.values(warn=False)[criterion.name])
        rows[criterion.name] = {"device": values[0], "cpu": values[1], "relative": _relative(*values)}
        yield {"inputs": inputs, "criteria": rows}


def _moved(batch: Any, device: torch.device) -> Any:
    layers = {name: outputs.to(device) for name, outputs in batch.layers.items()}
    classes = list(batch.layers.values())[-1].argmax(1).to(device)
    return nc.Activations(layers, labels=classes, predictions=classes)


def _relative(one: float, other: float) -> float:
    return abs(one - other) / max(abs(other), 1e-300) if one != other else 0.0

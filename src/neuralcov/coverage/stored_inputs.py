"""What files hold of the inputs: runs, sketches and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.container import Container
from neuralcov.coverage.environment import from_utc, to_utc
from neuralcov.coverage.excluded import ExcludedInputs
from neuralcov.coverage.seen import KeyRule, Run, SeenInputs
from neuralcov.coverage.sketch import SKETCH_SIZE, Sketch
from neuralcov.coverage.suite_counts import SuiteCounts


def inputs_to_json(seen: SeenInputs, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return what a header holds of the inputs, and add its tensors."""
    runs = seen.runs
    header = {
        "keys": seen.mark,
        "runs": [
            {"id": run.id, "inputs": run.inputs, "from": to_utc(run.first), "to": to_utc(run.last)} for run in runs
        ],
        "shared": seen.shared,
        "sketch": _sketch_to_json(seen.sketch, "inputs.sketch", tensors),
        "counts": seen.counts.to_json(),
        **seen.names_to_json(),
    }
    if seen.rule.kind == "plain":
        # Whoever has an input and the model could tell whether it is among these.
        header["likeness"] = _sketch_to_json(seen.counts.likeness, "inputs.likeness", tensors)
    return header


def read_inputs(inputs: Mapping[str, Any], file: Container, rule: KeyRule | None) -> SeenInputs:
    """Read what a file holds of the inputs."""
    seen = SeenInputs(rule)
    runs = [
        Run(
            None if run["id"] is None else str(run["id"]),
            int(run["inputs"]),
            from_utc(run["from"]),
            from_utc(run["to"]),
        )
        for run in inputs["runs"]
    ]
    seen.restore(runs, _read_sketch(inputs["sketch"], file), shared=int(inputs["shared"]), mark=str(inputs["keys"]))
    seen.excluded = ExcludedInputs.from_json(inputs.get("excluded", {}))
    if "counts" in inputs:
        seen.counts = SuiteCounts.from_json(inputs["counts"])
    unknown = Sketch(times=None)
    seen.counts.likeness = _read_sketch(inputs["likeness"], file) if "likeness" in inputs else unknown
    return seen


def _sketch_to_json(sketch: Sketch, name: str, tensors: dict[str, Tensor]) -> dict[str, str]:
    tensors[name] = torch.from_numpy(sketch.words.view(np.int64).copy())
    if sketch.times is None:
        return {"tensor": name}
    tensors[f"{name}.times"] = torch.from_numpy(sketch.times.copy())
    return {"tensor": name, "times": f"{name}.times"}


def _read_sketch(stored: Mapping[str, str], file: Container) -> Sketch:
    words = _read(stored["tensor"], file).view(np.uint64)
    times = _read(stored["times"], file) if "times" in stored else None
    if times is not None and (len(times) != len(words) or (len(times) and int(times.min()) < 1)):
        raise file.error(f"{stored['times']} does not count the words of {stored['tensor']}")
    return Sketch(words, times)


def _read(name: str, file: Container) -> np.ndarray:
    stored = file.tensors[name]
    if stored.dtype != torch.int64 or len(stored.shape) != 1 or stored.shape[0] > SKETCH_SIZE:
        raise file.error(f"{name} holds {stored.dtype} of shape {stored.shape}, expected at most {SKETCH_SIZE} words")
    words: np.ndarray = file.read(name).numpy()
    return words

"""Evidence of a coverage: how its inputs were measured, and who model, suite and calibration are."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import safetensors
import torch

from neuralcov.core.arguments import with_tuples
from neuralcov.core.container import canonical
from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import InputError, MismatchError
from neuralcov.core.find_criterion import criterion_stored_as
from neuralcov.core.registry import stored_class
from neuralcov.coverage.data import CoverageData
from neuralcov.coverage.environment import device_name, software, to_utc
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.provenance import checked_preprocessing
from neuralcov.results import Results
from neuralcov.results.evidence import TOLERANCE, Evidence, make_evidence


class EvidenceCoverage(CoverageData):
    """Say how inputs were measured, for files that others check."""

    def note_procedure(
        self,
        *,
        batch_size: int | None = None,
        seed: int | None = None,
        names: Mapping[str, Any] | None = None,
        command: Sequence[str] = (),
    ) -> None:
        """Note how all inputs so far were measured, with this device, precision and software; state files keep it.

        The note is dropped once other inputs are observed or merged.

        Args:
            batch_size: inputs per forward pass.
            seed: of random choices outside of criteria, where there were any.
            names: what was measured, as a command line names it.
            command: the command line.
        """
        ours = self._measurement
        noted = _procedure(ours, batch_size, seed, checked_preprocessing(dict(names or {})), list(command))
        ours.provenance.note_procedure(noted)

    def evidence(self, result: Results | None = None, *, tolerance: float = TOLERANCE) -> Evidence:
        """Return evidence of what was measured; its ``write`` makes the file.

        Args:
            result: what ``results`` gave, where it has names and notes of your own.
            tolerance: the share by which a figure may be off on other devices or software.
        """
        ours = self._measurement
        if self.layout is None or ours.collection.empty:
            raise InputError("there is no evidence yet: no input was observed")
        if not 0 <= tolerance < 1:
            raise InputError(f"tolerance={tolerance!r}: expected a share from 0 to 1, such as 0.01")
        result = self.results() if result is None else result
        noted = ours.procedure
        if noted is None and ours.tap is not None:
            noted = _procedure(ours, None, None, {}, [])
        procedure = {
            "criteria": [_criterion(c, ours.collection.definitions[c.name]) for c in self.criteria],
            "layers": [[name, width] for name, width in self.layout.widths.items()],
            "unmeasured": None,
            **({} if noted is None else {key: value for key, value in noted.items() if key != "software"}),
        }
        return make_evidence(
            result,
            made=str(to_utc(time.time())),
            identity=_identity(ours, result),
            procedure=procedure,
            software={} if noted is None else noted["software"],
            tolerance=tolerance,
        )


def criteria_of(evidence: Evidence, name: str) -> list[Criterion[Any]]:
    """Return the criteria that evidence names, as installed packages define them.

    Args:
        evidence: what a file says.
        name: the file, for messages.
    """
    found = []
    for entry in evidence.procedure["criteria"]:
        cls = criterion_stored_as(str(entry["class"]))
        if cls is None:
            raise MismatchError(f"{name} has the criterion {entry['class']!r}, which no installed package defines")
        if entry["definition"] != cls.definition:
            raise MismatchError(
                f"{name}: {entry['name']} was measured under definition {entry['definition']}, this neuralcov has "
                f"definition {cls.definition}: verify with the version that the file names"
            )
        found.append(cls(**{key: with_tuples(value) for key, value in entry["parameters"].items()}))
    return found


def _criterion(criterion: Criterion[Any], definition: int) -> dict[str, Any]:
    return {
        "name": criterion.name,
        "class": stored_class(type(criterion)),
        "definition": definition,
        "parameters": criterion.parameters,
        "promises": sorted(criterion.promises),
    }


def _procedure(
    ours: Measurement, batch_size: int | None, seed: int | None, names: Any, command: list[str]
) -> dict[str, Any]:
    unmeasured = None if ours.collection.layout is None else ours.unmeasured()
    return {
        "inputs": ours.collection.inputs,
        "batch_size": batch_size,
        "order": ours.seen.order,
        "seed": seed,
        "precision": _precision(ours),
        "device": _device(ours.device),
        "unmeasured": None if unmeasured is None else asdict(unmeasured),
        "names": names,
        "command": command,
        "software": _software(ours.device),
    }


def _precision(ours: Measurement) -> dict[str, Any]:
    """Return in which types the model computes."""
    model = ours.provenance.model
    types = [] if model is None else sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters()})
    return {
        "parameters": types,
        "autocast": torch.is_autocast_enabled(ours.device.type),
        "matmul": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32 if ours.device.type == "cuda" else None,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _device(device: torch.device) -> dict[str, Any]:
    """Return what decides the last digits of a sum: the device, its instructions, and how many share the work."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return {"name": device_name(device), "capability": f"{major}.{minor}", "threads": None}
    capability = torch.backends.cpu.get_cpu_capability() if device.type == "cpu" else None
    return {"name": device_name(device), "capability": capability, "threads": torch.get_num_threads()}


def _software(device: torch.device) -> dict[str, Any]:
    found: dict[str, Any] = {**software(), "numpy": np.__version__, "safetensors": safetensors.__version__}
    found["platform"] = f"{platform.system()} {platform.machine()}"
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    return found


def _identity(ours: Measurement, result: Results) -> dict[str, Any]:
    """Return who model, suite, calibration and preprocessing are."""
    told = ours.describe()
    taught = told["calibration"]["model"]
    names = {} if ours.procedure is None else ours.procedure["names"]
    preprocessing = told["preprocessing"]
    return {
        "model": {**(told["model"] or {"id": None}), "name": names.get("model", result.model)},
        "suite": {
            "name": names.get("data", result.suite),
            "inputs": ours.collection.inputs,
            "keys": ours.seen.mark,
            "runs": [{"id": run.id, "inputs": run.inputs} for run in ours.seen.runs],
        },
        "calibration": {
            "name": names.get("calibrate"),
            "model": None if taught is None else taught["id"],
            "learnt": ours.learnt_ids(),
        },
        "preprocessing": {
            "told": preprocessing,
            "sha256": hashlib.sha256(canonical(preprocessing).encode()).hexdigest(),
        },
        "file": ours.provenance.states.file,
        "parents": told["parents"],
    }

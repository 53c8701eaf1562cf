"""What workers of pytest-xdist observe, handed through files to the process that started them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from neuralcov.core.files import write_bytes, write_json
from neuralcov.coverage.coverage import Coverage
from neuralcov.integrations.pytest_models import HeardModel, TestState
from neuralcov.tap.listening import Heard


def hand_over(folder: Path, worker: str, models: Sequence[HeardModel], error: str | None) -> None:
    """Write what one worker has observed; the list of it comes last, so that what it names is there."""
    entries = []
    for number, model in enumerate(models):
        coverage, state = model.coverage, None
        if coverage is not None and coverage.inputs:
            state = f"{worker}-{number}.ncov"
            write_bytes(folder / state, coverage.to_bytes(), durable=False)
        tests = []
        for place, test in enumerate(model.tests):
            name = f"{worker}-{number}-{place}.ncov"
            write_bytes(folder / name, test.state, durable=False)
            tests.append({"place": test.place, "name": test.name, "inputs": test.inputs, "file": name})
        entries.append({"heard": asdict(model.heard), "state": state, "tests": tests, "dropped": model.dropped_tests})
    write_json(folder / f"{worker}.json", {"models": entries, "error": error}, durable=False)


def collect(folder: Path, models: Sequence[HeardModel]) -> tuple[list[str], int]:
    """Merge what all workers have observed into models, in the order of the workers' numbers.

    Returns:
        The errors that workers met, and how many workers observed anything.
    """
    errors, workers = [], 0
    for path in sorted(folder.glob("*.json"), key=_number):
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["error"] is not None:
            errors.append(str(content["error"]))
        workers += any(entry["state"] is not None for entry in content["models"])
        for model, entry in zip(models, content["models"], strict=True):
            model.heard.add(Heard(**entry["heard"]))
            model.dropped_tests |= entry["dropped"]
            for test in entry["tests"]:
                state = (folder / test["file"]).read_bytes()
                model.tests.append(TestState(test["place"], test["name"], test["inputs"], state))
            if entry["state"] is None:
                continue
            found = Coverage.load(folder / entry["state"])
            if model.coverage is None:
                model.coverage = found
            else:
                model.coverage.merge(found, overlap="repeat")
    return list(dict.fromkeys(errors)), workers


def _number(path: Path) -> tuple[int, str]:
    """Put gw10 behind gw9."""
    digits = re.search(r"\d+", path.stem)
    return (int(digits.group()) if digits else -1, path.stem)

"""The paper's own figures, to stand beside ours."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

SUITES = {
    "diversity-image": ("test", "x10", "x1"),
    "diversity-text": ("test", "x10", "x1"),
    "diversity-generative": ("Normal", "N/2", "N/10", "C/2", "C/10"),
}


@lru_cache(maxsize=1)
def figures() -> dict[str, Any]:
    """Return all of them, by experiment; shares in per cent.

    >>> figures()["time"]["NLC"]
    4.4
    """
    content: dict[str, Any] = json.loads(files("neuralcov_lab.experiments").joinpath("paper.json").read_text())
    return content


def source() -> str:
    """Return where they are from."""
    return str(figures()["source"])


def figure(experiment: str, subject: str, suite: str, criterion: str) -> float | None:
    """Return one figure of the tables on suites, or ``None`` where the paper has none.

    >>> figure("diversity-image", "vgg16_bn", "test", "NLC"), figure("faults", "resnet50", "PGD", "SNAC")
    (403.95, 23.22)
    >>> figure("diversity-image", "vgg16_bn", "test", "LVC") is None
    True
    """
    name = criterion.replace(", by=label", "")
    found: Any = figures().get(experiment, {})
    if experiment == "diversity-image":
        found = found.get(name, {}).get(subject)
    elif experiment in SUITES:
        found = found.get(name)
    elif experiment == "faults":
        return _number(found.get(name, {}).get(subject, {}).get("Test" if suite == "test" else suite))
    elif experiment == "faults-test" and suite != "test":
        return _number(found.get(name, {}).get(subject)) if suite == "PGD" else None
    elif experiment == "perturbations" and suite.startswith("AP "):
        return _number(found.get(subject, {}).get(suite.removeprefix("AP "), {}).get(name))
    else:
        # The other tables compare with the test suite of the table on faults.
        return figure("faults", subject, suite, criterion) if suite == "test" else None
    if found is None or suite not in SUITES[experiment]:
        return None
    return _number(found[SUITES[experiment].index(suite)])


def _number(value: Any) -> float | None:
    return None if value is None else float(value)

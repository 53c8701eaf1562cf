"""pytest's plugin: measure models while tests run them. It imports pytest alone unless ``--neuralcov`` is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from neuralcov.coverage import Coverage
    from neuralcov.integrations.pytest_session import MeasuredSession

_NAME = "neuralcov_session"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; each may also stand in ``[tool.neuralcov.pytest]`` of ``pyproject.toml``."""
    group = parser.getgroup("neuralcov", "coverage of neural networks")
    add = group.addoption
    add(
        "--neuralcov",
        action="append",
        nargs="?",
        const="",
        metavar="MODEL",
        help="Measure a model while tests run it: package.module:model, or fixture:NAME; repeat it for several. "
        "Without MODEL, those of [tool.neuralcov.pytest].",
    )
    add("--no-neuralcov", action="store_true", help="Measure nothing, whatever else is given.")
    add(
        "--neuralcov-criteria",
        action="append",
        metavar="NAMES",
        help="Such as 'LCC, KMNC(100)' or nc:0.5; repeat it. Otherwise LCC, KMNC(100) and SNAC, or without "
        "--neuralcov-calibrate NC(0.75) and TKNC(10).",
    )
    add("--neuralcov-layers", metavar="GLOBS", help="Layers to measure, such as 'conv*|fc1'.")
    add(
        "--neuralcov-calibrate",
        metavar="DATA",
        help="Training data as `neuralcov measure` takes them, or a saved calibration (.ncal).",
    )
    add(
        "--neuralcov-fail-under",
        action="append",
        metavar="NAME=NUMBER",
        help="Fail if a figure is below a number: LCC=0.2, LCC.relative=0.9; repeat it.",
    )
    add(
        "--neuralcov-allow-alarm",
        action="append",
        metavar="NAME=REASON",
        help="Do not fail for this alarm, which --neuralcov-fail-under does otherwise; repeat it.",
    )
    add("--neuralcov-save", metavar="FILE", help="Write the coverage state (.ncov).")
    add(
        "--neuralcov-report",
        action="append",
        metavar="FILE",
        help="Write a report: .html, .json, .md, .xml (JUnit), .prom or .txt; repeat it.",
    )
    add(
        "--neuralcov-contexts",
        nargs="?",
        const="",
        metavar="FILE",
        help="Show what each test adds and what would be lost without it; write it as .csv or .jsonl.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register what measures, if that is asked for."""
    if config.getoption("neuralcov") is None or config.getoption("no_neuralcov"):
        return
    from neuralcov.integrations.pytest_session import MeasuredSession

    config.pluginmanager.register(MeasuredSession(config), _NAME)


def _session(request: pytest.FixtureRequest) -> MeasuredSession | None:
    found: MeasuredSession | None = request.config.pluginmanager.get_plugin(_NAME)
    return found


@pytest.fixture
def neuralcov_coverage(request: pytest.FixtureRequest) -> Coverage | None:
    """Return the coverage of the model, or ``None`` where nothing is measured.

    With several models, ``neuralcov_coverages`` has all of them.
    """
    session = _session(request)
    return None if session is None else session.only_model().coverage


@pytest.fixture
def neuralcov_coverages(request: pytest.FixtureRequest) -> dict[str, Coverage | None]:
    """Return the coverages by the names of their models as given; empty where nothing is measured."""
    session = _session(request)
    return {} if session is None else {model.name: model.coverage for model in session.models}


@pytest.fixture
def neuralcov_labels(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that gives the labels of the last pass: ``neuralcov_labels(y)``, or ``(y, model="my:net")``.

    It does nothing where nothing is measured, so that tests may call it always.
    """
    session = _session(request)

    def labels(classes: Any, *, model: str | None = None) -> None:
        if session is not None and session.listens:
            (session.only_model() if model is None else session.model_named(model)).labels(classes)

    return labels

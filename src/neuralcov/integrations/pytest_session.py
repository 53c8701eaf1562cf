"""A test run that is measured: when to listen, what to do at the end, and what to tell."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from neuralcov.core.counted import counted
from neuralcov.core.criterion import MERGE_EXACT
from neuralcov.core.errors import InputError, NeuralcovError
from neuralcov.coverage.coverage import Coverage
from neuralcov.integrations.pytest_contexts import Contexts, compare_tests
from neuralcov.integrations.pytest_models import HeardModel
from neuralcov.integrations.pytest_settings import read_settings
from neuralcov.integrations.pytest_summary import model_lines, nothing_heard
from neuralcov.integrations.pytest_workers import collect, hand_over
from neuralcov.results.gate import Verdict, judge_gate
from neuralcov.results.results import Results

_FOLDER = "neuralcov_folder"


@dataclass
class Outcome:
    """Hold what is to be told of one model."""

    model: HeardModel
    result: Results | None = None
    verdict: Verdict | None = None
    contexts: Contexts | None = None
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class MeasuredSession:
    """Measure models while tests run: pytest's hooks.

    In a worker of pytest-xdist it only listens, and leaves the rest to the process that started the workers.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        if self._worker is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="neuralcov-pytest-")
            config.add_cleanup(self._temporary.cleanup)
            self._folder = Path(self._temporary.name)
        else:
            self._folder = Path(self._worker[_FOLDER])
        try:
            self._settings = read_settings(config)
        except NeuralcovError as error:
            raise pytest.UsageError(str(error)) from error
        self.models = [
            HeardModel(name, self._settings, self._folder, number) for number, name in enumerate(self._settings.models)
        ]
        self._places: dict[pytest.Item, int] = {}
        self._outcomes: list[Outcome] = []
        self._crashed: list[str] = []
        self.listens = False
        """Whether tests are being listened to."""

    def only_model(self) -> HeardModel:
        """Return the model, if there is but one."""
        if len(self.models) > 1:
            names = ", ".join(model.name for model in self.models)
            raise InputError(f"{counted(len(self.models), 'model')} are measured: name one of {names}")
        return self.models[0]

    def model_named(self, name: str) -> HeardModel:
        """Return the model of a name."""
        for model in self.models:
            if model.name == name:
                return model
        raise InputError(f"{name!r} is not measured: name one of {', '.join(model.name for model in self.models)}")

    # While tests run

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Listen while tests run, and judge at the end."""
        if session.config.option.collectonly:
            return (yield)
        shared = self._config.pluginmanager.hasplugin("dsession")
        failure = None if shared else self._start(session)
        try:
            outcome = yield
        except BaseException:
            self._stop()
            raise
        failure = failure or self._stop()
        if self._worker is not None:
            hand_over(self._folder, self._worker["workerid"], self.models, failure)
        elif session.testscollected:
            self._end(session, failure, shared=shared)
        return outcome

    def _start(self, session: pytest.Session) -> str | None:
        """Begin to listen; what a user must change ends the run, or in a worker is told at the end."""
        try:
            for model in self.models:
                model.start()
        except (NeuralcovError, OSError) as error:
            if self._worker is None:
                raise pytest.UsageError(str(error)) from error
            return str(error)
        self._places = {item: place for place, item in enumerate(session.items)}
        self.listens = True
        return None

    def _stop(self) -> str | None:
        """Stop listening; return what went wrong by then."""
        failure = None
        for model in self.models:
            try:
                model.forget()
            except NeuralcovError as error:
                failure = failure or str(error)
        return failure

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Keep what each test observes, if that is asked for."""
        if not (self.listens and self._settings.contexts):
            return (yield)
        for model in self.models:
            model.start_test(self._places[item], item.nodeid)
        try:
            return (yield)
        finally:
            for model in self.models:
                model.end_test()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Listen to what a fixture gives, if a model is named after it."""
        value = yield
        for model in self.models:
            if self.listens and model.fixture == fixturedef.argname:
                model.hear(value)
                fixturedef.addfinalizer(model.forget)
        return value

    # At the end

    def _end(self, session: pytest.Session, failure: str | None, *, shared: bool) -> None:
        """Judge, save and report."""
        errors, workers = ([], 1) if failure is None else ([failure], 1)
        if shared:
            try:
                errors, workers = collect(self._folder, self.models)
            except NeuralcovError as error:
                errors = [str(error)]
        self._outcomes = [self._judged(model, workers, list(errors)) for model in self.models]
        for outcome in self._outcomes:
            met = outcome.verdict is None or outcome.verdict.met
            # As a failed test, so that the exit status tells.
            session.testsfailed += bool(outcome.errors) + (not met)

    def _judged(self, model: HeardModel, workers: int, errors: list[str]) -> Outcome:
        """Return what is to be told of one model; write what was asked for."""
        outcome = Outcome(model, errors=errors)
        outcome.notes += [f"{worker} crashed: what its tests covered is missing here" for worker in self._crashed]
        coverage = model.coverage
        if coverage is None or not coverage.inputs:
            if not errors:
                outcome.errors.append(nothing_heard(model))
            return outcome
        inexact = [each.name for each in coverage.criteria if MERGE_EXACT not in each.promises and workers > 1]
        if inexact:
            outcome.notes.append(
                f"{', '.join(inexact)}: merged from {workers} workers, which is not exact: the value depends on which "
                "worker ran what; without -n it is that of one process"
            )
        try:
            self._judge(outcome, coverage, inexact)
        except (NeuralcovError, OSError) as error:
            outcome.errors.append(str(error))
        return outcome

    def _judge(self, outcome: Outcome, coverage: Coverage, inexact: list[str]) -> None:
        settings, name = self._settings, outcome.model.name
        outcome.result = coverage.report_content(model=name, suite="tests").result
        # Files first: a gate that cannot be judged must not cost what was measured.
        if settings.save is not None:
            coverage.save(settings.file(settings.save, name))
            outcome.notes.append(f"state written to {settings.file(settings.save, name)}")
        if settings.contexts:
            self._compare_tests(outcome)
        for figure in settings.policy.least:
            criterion = next((each for each in inexact if figure == each or figure.startswith(f"{each}.")), None)
            if criterion is not None:
                raise InputError(f"--neuralcov-fail-under {figure}: {criterion} does not merge exactly: run without -n")
        if settings.policy.asks:
            outcome.verdict = judge_gate(outcome.result, settings.policy, datetime.datetime.now(datetime.UTC).date())
        for report in settings.reports:
            policy = settings.policy if settings.policy.asks else None
            coverage.report(settings.file(report, name), model=name, suite="tests", policy=policy)
            outcome.notes.append(f"report written to {settings.file(report, name)}")

    def _compare_tests(self, outcome: Outcome) -> None:
        model, file = outcome.model, self._settings.contexts_file
        if model.dropped_tests:
            outcome.notes.append("the states of single tests take more than 2 GiB, so it is not told what each adds")
        elif model.tests:
            outcome.contexts = compare_tests(model.tests)
            if file is not None:
                path = self._settings.file(file, model.name)
                outcome.contexts.table().write(path)
                outcome.notes.append(f"what each test adds written to {path}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell what was measured."""
        for outcome in self._outcomes:
            terminalreporter.write_sep("=", f"neuralcov: {outcome.model.name}")
            for line, colour in model_lines(outcome):
                terminalreporter.write_line(line, **({colour: True} if colour else {}))

    # Workers of pytest-xdist

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to leave what it observes."""
        node.workerinput[_FOLDER] = str(self._folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Note a worker that ended before it could hand anything over."""
        if error is not None:
            self._crashed.append(node.gateway.id)

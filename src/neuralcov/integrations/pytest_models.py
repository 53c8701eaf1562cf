"""One model that tests run: found by its name or as a fixture, listened to, whole and test by test."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CoverageWarning, InputError, NeuralcovError
from neuralcov.core.files import lock_file
from neuralcov.coverage.coverage import Coverage
from neuralcov.integrations.pytest_settings import FIXTURE, Settings
from neuralcov.sources.data import load_data
from neuralcov.sources.names import criterion_from_text, imported
from neuralcov.tap.listening import Heard

# Those of ``measure`` that workers' states merge exactly; by name, as a command line would.
_CALIBRATED = ("LCC", "KMNC(100)", "SNAC")
_PLAIN = ("NC(0.75)", "TKNC(10)")
_BATCH = 100
# Bytes that the states of all tests may take.
CONTEXT_MEMORY = 2 << 30


@dataclass(frozen=True)
class TestState:
    """Hold what one test observed: its place in the order of collection, and the bytes of its state."""

    __test__ = False

    place: int
    name: str
    inputs: int
    state: bytes


@dataclass(eq=False)
class _Block:
    """Listen to a module with one coverage."""

    coverage: Coverage
    stack: ExitStack
    heard: Heard

    @classmethod
    def open(cls, coverage: Coverage) -> _Block:
        stack = ExitStack()
        return cls(coverage, stack, stack.enter_context(coverage.listen()))

    def close(self) -> None:
        """End it; tests that run no model are fine."""
        try:
            with _quiet():
                self.stack.close()
        except InputError:
            if self.heard.passes > self.heard.empty:
                raise

    @property
    def fruitful(self) -> bool:
        return self.heard.passes > self.heard.empty


class HeardModel:
    """Listen to a model while tests run.

    Args:
        name: as it was given: ``package.module:attribute`` or ``fixture:NAME``.
        settings: what to measure.
        folder: where calibrations go that other processes of this run, or later objects of a fixture, take over.
        number: of the model among those that are measured.
    """

    def __init__(self, name: str, settings: Settings, folder: Path, number: int) -> None:
        self.name, self._settings, self._folder = name, settings, folder
        self._calibration = folder / f"{number}.ncal"
        self.coverage: Coverage | None = None
        self.heard = Heard()
        self.tests: list[TestState] = []
        self.dropped_tests = False
        self._criteria: list[Criterion[Any]] = []
        self._module: nn.Module | None = None
        self._empty: Coverage | None = None
        self._whole: _Block | None = None
        self._of_test: _Block | None = None
        self._test: tuple[int, str] | None = None

    @property
    def fixture(self) -> str | None:
        """The name of the fixture that gives the model, if one does."""
        return self.name.removeprefix(FIXTURE) if self.name.startswith(FIXTURE) else None

    def start(self) -> None:
        """Find the model and listen to it, unless a fixture will give it."""
        module = None if self.fixture is not None else find_model(self.name)
        # After the model, whose module may define criteria of its own.
        settings = self._settings
        chosen = settings.criteria or (_PLAIN if settings.calibrate is None else _CALIBRATED)
        self._criteria = [_with_errors(criterion_from_text(each)) for each in chosen]
        if module is not None:
            self.hear(module)

    def hear(self, module: Any) -> None:
        """Listen to a module from now on."""
        if module is self._module:
            return
        if not isinstance(module, nn.Module):
            raise InputError(f"--neuralcov {self.name} gave a {type(module).__name__}: expected a torch.nn.Module")
        if self._module is not None:
            raise InputError(f"--neuralcov {self.name} gives two models at a time: use one fixture for each")
        with _quiet():
            self.coverage = self._taken_over(module) if self._observed else self._begun(module)
        # Tests of their own begin with it: what listens is not copied.
        self._empty = self.coverage.fork()
        self._empty.reset()
        self._module, self._whole = module, _Block.open(self.coverage)
        self._hear_test()

    def forget(self) -> None:
        """Stop listening: the fixture's module is no longer used."""
        self._end_test_block()
        block, self._whole, self._module, self._empty = self._whole, None, None, None
        if block is not None:
            block.close()
            self.heard.add(block.heard)

    def start_test(self, place: int, name: str) -> None:
        """Begin to keep what one test observes."""
        self._test = place, name
        self._hear_test()

    def end_test(self) -> None:
        """Keep what the test has observed."""
        self._end_test_block()
        self._test = None

    def labels(self, classes: Any) -> None:
        """Give the labels of the last pass."""
        if self._whole is None:
            raise InputError(f"labels before there is a model: request the fixture {self.fixture!r} first")
        for block in (self._whole, self._of_test):
            if block is not None:
                block.coverage.labels(classes)

    @property
    def _observed(self) -> bool:
        return self.coverage is not None and self.coverage.inputs > 0

    def _hear_test(self) -> None:
        if self._test is not None and self._empty is not None and self._of_test is None and not self.dropped_tests:
            self._of_test = _Block.open(self._empty.fork())

    def _end_test_block(self) -> None:
        block, self._of_test = self._of_test, None
        if block is None:
            return
        block.close()
        if not block.fruitful:
            return
        assert self._test is not None
        with _quiet():
            content = block.coverage.to_bytes()
        self.tests.append(TestState(*self._test, block.coverage.inputs, content))
        if sum(len(test.state) for test in self.tests) > CONTEXT_MEMORY:
            self.tests, self.dropped_tests = [], True

    def _begun(self, module: nn.Module) -> Coverage:
        """Return a coverage of a module, calibrated if that is asked for."""
        settings = self._settings
        coverage = Coverage(module, self._criteria, layers=settings.layers)
        if settings.calibrate is None:
            return coverage
        saved = settings.saved_calibration(self.name)
        if saved is not None:
            coverage.calibrate(saved)
            return coverage
        # The first process of a run does it for all.
        with lock_file(self._calibration.with_suffix(".lock"), wait=True):
            if self._calibration.exists():
                coverage.calibrate(self._calibration)
            else:
                data = load_data(settings.calibrate, batch_size=_BATCH, split="train")
                coverage.calibrate(data.loader, progress=False)
                coverage.save_calibration(self._calibration)
        return coverage

    def _taken_over(self, module: nn.Module) -> Coverage:
        """Return a coverage of another object with the same weights, which goes on from the one before."""
        assert self.coverage is not None
        calibration = None
        if self._settings.calibrate is not None:
            calibration = self._settings.saved_calibration(self.name) or self._calibration
        try:
            return Coverage.from_bytes(self.coverage.to_bytes(), module, calibration=calibration)
        except NeuralcovError as error:
            raise InputError(f"--neuralcov {self.name} gave another model than before: {error}") from error


def find_model(name: str) -> nn.Module:
    """Return the module that ``package.module:attribute`` names, or gives when it is called, and always the same."""
    module, _, attribute = name.partition(":")
    try:
        found = imported(module, attribute, "--neuralcov")
        if isinstance(found, nn.Module):
            return found
        if type(found).__module__.startswith("_pytest"):
            raise InputError(f"--neuralcov {name} is a fixture: write --neuralcov fixture:{attribute}")
        if not callable(found):
            raise InputError(f"--neuralcov {name} is a {type(found).__name__}: expected a torch.nn.Module")
        given = found()
        same = hasattr(found, "cache_info") or found() is given
    except NeuralcovError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise InputError(f"--neuralcov {name} cannot be built: {type(error).__name__}: {first}") from error
    if not isinstance(given, nn.Module):
        raise InputError(f"--neuralcov {name} gave a {type(given).__name__}: expected a torch.nn.Module")
    if not same:
        raise InputError(
            f"--neuralcov {name} gives a new model at every call, and tests would run others than this one: decorate "
            "it with functools.cache, or name a module's attribute or a fixture (fixture:NAME)"
        )
    return given


def _with_errors(criterion: Criterion[Any]) -> Criterion[Any]:
    """Let criteria that tick off cells keep what their standard errors need, as ``measure`` does."""
    known = is_dataclass(criterion) and any(each.name == "errors" for each in fields(criterion))
    changed: dict[str, Any] = {"errors": True} if known else {}
    return replace(criterion, **changed)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave findings to the summary, which has all of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        yield

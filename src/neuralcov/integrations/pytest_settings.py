"""What pytest is asked to measure: options of the command line, over ``[tool.neuralcov.pytest]``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from neuralcov.core.arguments import plain_key
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.report.formats import format_of
from neuralcov.results.input_table import writer_for
from neuralcov.results.limits import reasons, thresholds
from neuralcov.results.policy import Policy

_KEYS = (
    "models",
    "criteria",
    "layers",
    "calibrate",
    "fail_under",
    "allow_alarm",
    "save",
    "report",
    "contexts",
)
FIXTURE = "fixture:"
_MODEL = "{model}"


@dataclass(frozen=True)
class Settings:
    """Hold what to measure and what to do with it.

    Args:
        models: ``package.module:attribute`` or ``fixture:NAME``.
        criteria: as texts; the defaults if there are none.
        layers: globs on the names of layers.
        calibrate: training data, or a saved calibration.
        policy: what is asked of every model.
        save: where states go.
        reports: where reports go.
        contexts: whether to tell what each test adds.
        contexts_file: where that goes.
    """

    models: tuple[str, ...]
    criteria: tuple[str, ...] = ()
    layers: str | None = None
    calibrate: str | None = None
    policy: Policy = field(default_factory=Policy)
    save: str | None = None
    reports: tuple[str, ...] = ()
    contexts: bool = False
    contexts_file: str | None = None

    def file(self, name: str, model: str) -> Path:
        """Return a file's name for a model."""
        return Path(name.replace(_MODEL, plain_key(model.replace(":", "_"))))

    def saved_calibration(self, model: str) -> Path | None:
        """Return the file of a saved calibration, if it is one that was named."""
        if self.calibrate is None:
            return None
        path = self.file(self.calibrate, model)
        return path if path.is_file() else None

    def check(self) -> None:
        """Refuse what cannot be right before anything runs."""
        for model in self.models:
            source, colon, name = model.partition(":")
            if not (colon and source and name):
                raise InputError(
                    f"--neuralcov {model!r}: expected package.module:model or fixture:NAME; before a path of tests "
                    "write --neuralcov=MODEL"
                )
            if self.models.count(model) > 1:
                raise InputError(f"--neuralcov {model}: given {self.models.count(model)} times: give it once")
        for report in self.reports:
            if format_of(report) == "junit" and not self.policy.asks:
                raise InputError(
                    f"{report}: JUnit has a case for everything that is asked, and nothing is: give "
                    "--neuralcov-fail-under NAME=NUMBER"
                )
        if self.contexts_file is not None:
            writer_for(self.contexts_file)
        for file in (self.save, self.contexts_file, *self.reports):
            if file is not None and len(self.models) > 1 and _MODEL not in file:
                raise InputError(
                    f"{file}: {counted(len(self.models), 'model')} would write it: put {_MODEL} into its name"
                )


def read_settings(config: pytest.Config) -> Settings:
    """Read what to measure; where both tell, the command line decides."""
    table = _table(config.rootpath / "pyproject.toml")
    option = config.getoption

    def texts(name: str, key: str) -> tuple[str, ...]:
        given: Sequence[str] | None = option(name)
        return tuple(given) if given else tuple(_list(table, key))

    named = [model for model in option("neuralcov") if model] or _list(table, "models")
    if not named:
        raise InputError(
            "--neuralcov names no model: give --neuralcov package.module:model, or name models in pyproject.toml"
        )
    calibrate = option("neuralcov_calibrate") or _in(config.rootpath, _text(table, "calibrate"), exists=True)
    contexts = option("neuralcov_contexts")
    beside = _in(config.rootpath, _text(table, "contexts"))
    reports = option("neuralcov_report") or [str(_in(config.rootpath, each)) for each in _list(table, "report")]
    limits = [f"{name}={number}" for name, number in _mapping(table, "fail_under").items()]
    allowed = [f"{name}={reason}" for name, reason in _mapping(table, "allow_alarm").items()]
    settings = Settings(
        models=tuple(named),
        criteria=tuple(each for text in texts("neuralcov_criteria", "criteria") for each in split_criteria(text)),
        layers=option("neuralcov_layers") or _text(table, "layers"),
        calibrate=calibrate,
        policy=Policy(
            least={
                **thresholds(limits, "pyproject.toml: fail_under"),
                **thresholds(option("neuralcov_fail_under") or [], "--neuralcov-fail-under"),
            },
            allowed={
                **reasons(allowed, "pyproject.toml: allow_alarm"),
                **reasons(option("neuralcov_allow_alarm") or [], "--neuralcov-allow-alarm"),
            },
        ),
        save=option("neuralcov_save") or _in(config.rootpath, _text(table, "save")),
        reports=tuple(reports),
        contexts=contexts is not None or beside is not None,
        contexts_file=contexts or beside,
    )
    settings.check()
    return settings


def split_criteria(text: str) -> Iterator[str]:
    """Yield the criteria of a text that joins them by commas or blanks, which may stand in brackets too.

    >>> list(split_criteria("LCC, KMNC(100) nc:0.5,LSC(10, by=label)"))
    ['LCC', 'KMNC(100)', 'nc:0.5', 'LSC(10, by=label)']
    """
    return (found.group() for found in re.finditer(r"[^\s,(]+(?:\s*\([^)]*\))?", text))


def _table(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    # pytest has read it already, and would have complained of what is no TOML.
    content = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("neuralcov", {}).get("pytest", {})
    for key in content:
        if key not in _KEYS:
            raise InputError(f"{path} [tool.neuralcov.pytest]: {key!r} is not known; there are {', '.join(_KEYS)}")
    return content  # type: ignore[no-any-return]


def _text(table: Mapping[str, Any], key: str) -> str | None:
    found = table.get(key)
    if found is not None and not isinstance(found, str):
        raise InputError(f"[tool.neuralcov.pytest] {key} = {found!r}: expected a text")
    return found


def _list(table: Mapping[str, Any], key: str) -> list[str]:
    found = table.get(key, [])
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise InputError(f"[tool.neuralcov.pytest] {key} = {found!r}: expected a text, or a list of these")
    return texts


def _mapping(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise InputError(f'[tool.neuralcov.pytest] {key} = {found!r}: expected a table, such as {{ "LCC" = 0.2 }}')
    return found


def _in(folder: Path, name: str | None, *, exists: bool = False) -> str | None:
    """Return a file that pyproject.toml names, from its folder; what need not be a file and is none stays as it is."""
    if name is None or (exists and not (folder / name).is_file()):
        return name
    return str(folder / name)

"""Log a coverage to a tracker of experiments: MLflow, Weights & Biases, TensorBoard, DVCLive, or a function."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from neuralcov.core.arguments import plain_key, require
from neuralcov.core.errors import InputError
from neuralcov.coverage.data import CoverageData

_WHAT = "logs of coverage"


def metrics_of(coverage: CoverageData, prefix: str = "") -> dict[str, float]:
    """Return values and the figures beside them under plain keys that every tracker accepts.

    >>> import torch, neuralcov as nc
    >>> cov = nc.Coverage.of_layers({"fc": 2}, [nc.NC(0.75)])
    >>> cov.update(activations={"fc": torch.tensor([[0.0, 1.0]])})
    >>> metrics_of(cov, prefix="suite/")
    {'suite/inputs': 1.0, 'suite/nc_0.75': 0.5}

    Args:
        coverage: what was measured.
        prefix: what every key begins with.
    """
    keys = _keys([criterion.name for criterion in coverage.criteria])
    found = {f"{prefix}inputs": float(coverage.inputs)}
    details = coverage.details()
    for name, value in coverage.values(warn=False).items():
        found[f"{prefix}{keys[name]}"] = value
        for figure, number in details.get(name, {}).items():
            found[f"{prefix}{keys[name]}.{figure.replace(' ', '_')}"] = float(number)
    return found


def _keys(names: Sequence[str]) -> dict[str, str]:
    """Return a plain key for each name; those that would be alike end in a digest of the name.

    >>> _keys(["NC(0.75)", "DSC(0.1, layers=conv*)", "DSC(0.1, layers=conv)"])
    {'NC(0.75)': 'nc_0.75', 'DSC(0.1, layers=conv*)': 'dsc_0.1_layers_conv_e5ff8d', 'DSC(0.1, layers=conv)': ...}
    """
    keys = {name: plain_key(name) for name in names}
    taken = Counter(keys.values())
    return {
        name: key if taken[key] == 1 else f"{key}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"
        for name, key in keys.items()
    }


def log(coverage: CoverageData, to: Any, *, step: int | None = None, prefix: str = "neuralcov/") -> dict[str, float]:
    """Log values and the figures beside them.

    Args:
        coverage: what was measured.
        to: ``"mlflow"`` or ``"wandb"`` for the run under way, ``"tensorboard"`` for a folder under ``runs``,
            ``"dvclive"`` for the folder ``dvclive``; the module ``mlflow``, a run of W&B, a ``SummaryWriter``, a
            ``dvclive.Live``, a logger of Lightning; or a function of the metrics and the step.
        step: of the training, where there is one.
        prefix: what every key begins with.

    Returns:
        What was logged.
    """
    metrics = metrics_of(coverage, prefix)
    if isinstance(to, str):
        if to not in _BY_NAME:
            known = ", ".join(repr(name) for name in _BY_NAME)
            raise InputError(f"to={to!r}: expected {known}, a client of one of them, or a function")
        _BY_NAME[to](metrics, step)
    else:
        _log_to_object(to, metrics, step)
    return metrics


def _log_to_object(target: Any, metrics: dict[str, float], step: int | None) -> None:
    """Log to a client, told by the method it has."""
    if callable(getattr(target, "log_metrics", None)):  # mlflow, loggers of Lightning
        target.log_metrics(metrics, step=step)
    elif callable(getattr(target, "add_scalar", None)):  # SummaryWriter
        for key, value in metrics.items():
            target.add_scalar(key, value, step)
    elif callable(getattr(target, "log_metric", None)) and callable(getattr(target, "make_summary", None)):  # dvclive
        if step is not None:
            target.step = step
        for key, value in metrics.items():
            target.log_metric(key, value)
        target.make_summary()
    elif callable(getattr(target, "log", None)):  # a run of wandb
        target.log(metrics, step=step)
    elif callable(target):
        target(metrics, step)
    else:
        raise InputError(
            f"to= is a {type(target).__name__}, which logs in none of the ways known here: pass 'mlflow', 'wandb', "
            "'tensorboard' or 'dvclive', a run or writer of one of them, or a function of the metrics and the step"
        )


def _log_to_mlflow(metrics: dict[str, float], step: int | None) -> None:
    _log_to_object(require("mlflow", _WHAT, extra="mlflow"), metrics, step)


def _log_to_wandb(metrics: dict[str, float], step: int | None) -> None:
    run = require("wandb", _WHAT, extra="wandb").run
    if run is None:
        raise InputError("to='wandb': no run is under way: call wandb.init() first")
    _log_to_object(run, metrics, step)


def _log_to_tensorboard(metrics: dict[str, float], step: int | None) -> None:
    # Torch's own module says only that something is missing.
    require("tensorboard", _WHAT, extra="tensorboard")
    with require("torch.utils.tensorboard", _WHAT).SummaryWriter() as writer:
        _log_to_object(writer, metrics, step)


def _log_to_dvclive(metrics: dict[str, float], step: int | None) -> None:
    with require("dvclive", _WHAT, extra="dvclive").Live(resume=True, dvcyaml=None) as live:
        _log_to_object(live, metrics, step)


_BY_NAME: dict[str, Callable[[dict[str, float], int | None], None]] = {
    "mlflow": _log_to_mlflow,
    "wandb": _log_to_wandb,
    "tensorboard": _log_to_tensorboard,
    "dvclive": _log_to_dvclive,
}

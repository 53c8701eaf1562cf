"""Cut the proof of LCC into jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.lcc.fooling import fooling
from neuralcov_lab.experiments.lcc.forecasts import forecasts
from neuralcov_lab.experiments.lcc.honesty import errors, foretold, relatives
from neuralcov_lab.experiments.lcc.orders import orders
from neuralcov_lab.experiments.lcc.stability import stability
from neuralcov_lab.experiments.scales import Scale

NAME = "lcc"


@dataclass(frozen=True)
class Extent:
    """Say how far the proof goes.

    Args:
        orders: subjects whose orders are judged.
        honesty: subjects for ``next``, ``relative``, errors and forecasts.
        fooling: image classifiers for suites made to fool.
        stability: networks that are trained several times.
        draws: draws of every suite.
        splits: splits of the test set for ``next``, and pairs of draws for errors.
        fooled: draws of suites made to fool.
        seeds: seeds of the networks for stability.
        checkpoints: of each.
        steps: training steps of each.
        parts: of subjects that take long, one part of the data of so many.
    """

    orders: tuple[str, ...]
    honesty: tuple[str, ...]
    fooling: tuple[str, ...]
    stability: tuple[str, ...]
    draws: int
    splits: int
    fooled: int
    seeds: int
    checkpoints: int
    steps: int
    parts: Mapping[str, int] = field(default_factory=dict)


_LARGE = ("resnet50", "vgg16_bn", "mobilenet_v2")
# Data and networks that had no part in choosing LCC's settings.
NEW = ("convnet-fashion-mnist", "mlp-fashion-mnist", "transformer-newsgroups", "mlp-letter", "mobilenet_v2-imagenet")
EXTENTS = {
    "smoke": Extent(("digits", "mlp-toy", "lstm"), ("digits",), ("digits",), ("mlp-digits",), 4, 20, 2, 2, 3, 60),
    # One quick network for the orders, as large as the panel beside it; every criterion at many stages of two networks.
    "small": Extent(
        ("mlp-fashion-mnist",),
        ("mlp-fashion-mnist", "convnet-fashion-mnist", "convnet-mnist"),
        ("mlp-fashion-mnist",),
        ("convnet-mnist", "mlp-mnist"),
        4,
        20,
        2,
        3,
        10,
        1_000,
    ),
    "full": Extent(
        (*_LARGE, *NEW, "convnet-mnist", "mlp-mnist", "digits", "lstm"),
        (*_LARGE, "convnet-fashion-mnist", "transformer-newsgroups", "mlp-letter"),
        (*_LARGE, "convnet-fashion-mnist", "convnet-mnist"),
        ("convnet-fashion-mnist", "convnet-mnist", "mobilenet_v2-cifar10"),
        10,
        100,
        5,
        3,
        10,
        1_000,
        {"mobilenet_v2-imagenet": 10, "lstm": 10, "mobilenet_v2-cifar10": 5},
    ),
}


def plan(scale: Scale) -> list[Job]:
    """Plan what takes seconds first, then the orders of every subject, then networks at many stages."""
    extent = EXTENTS[scale.name]
    inputs = scale.training + scale.test
    jobs = [
        # Copies, ten times the test set, are most of it.
        _job(
            "orders",
            name,
            orders,
            {"draws": extent.draws} | _part(extent, name),
            inputs + 30 * extent.draws * scale.test,
            104,
        )
        for name in extent.orders
    ]
    for name in extent.honesty:
        jobs += [
            _job("next", name, foretold, {"splits": extent.splits}, inputs, 100),
            _job("relative", name, relatives, {"draws": extent.draws}, inputs, 101),
            _job("errors", name, errors, {"draws": extent.splits}, inputs, 102),
            _job("forecast", name, forecasts, {"splits": extent.draws}, inputs, 102),
        ]
    jobs += [
        _job("fooling", name, fooling, {"draws": extent.fooled}, inputs + 15_000 * extent.fooled, 103)
        for name in extent.fooling
    ]
    for name in extent.stability:
        given = {"seeds": extent.seeds, "checkpoints": extent.checkpoints, "steps": extent.steps}
        work = extent.seeds * extent.checkpoints * inputs / extent.parts.get(name, 1)
        jobs.append(_job("stability", name, stability, given | _part(extent, name), work, 105))
    return jobs


def _part(extent: Extent, name: str) -> dict[str, int]:
    return {"part": extent.parts[name]} if name in extent.parts else {}


def _job(
    what: str, subject: str, compute: Callable[..., dict[str, Any]], given: Mapping[str, Any], work: float, rank: int
) -> Job:
    return Job(
        name=f"{NAME}.{what}.{subject}",
        experiments=(NAME,),
        compute=compute,
        parameters={"subject": subject, **given},
        work=work,
        rank=rank,
        kind=f"{NAME} {what}",
    )

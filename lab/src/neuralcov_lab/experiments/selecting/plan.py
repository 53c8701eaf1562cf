"""``reproduce select``: faults that orders of unlabelled inputs find, in half pools of plain and shifted test sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.scales import FULL, SMOKE, Scale
from neuralcov_lab.experiments.selecting.judging import judge
from neuralcov_lab.experiments.selecting.measuring import measured
from neuralcov_lab.experiments.selecting.named import WEAK_DIGITS, WEAK_FASHION
from neuralcov_lab.experiments.selecting.shifts import NOMINAL, STRENGTHS

NAME = "select"
POOLS, SEARCHED, LABELS = 20, 1, 500
# Subject → another one for the same inputs, whose features tell clusters of faults; none for data with one network.
_SUBJECTS: dict[str, dict[str, str | None]] = {
    "smoke": {"digits": WEAK_DIGITS, "mlp-toy": None},
    "full": {
        "digits": WEAK_DIGITS,
        WEAK_DIGITS: "digits",
        "deepgd-lenet1": "deepgd-lenet5",
        "deepgd-lenet5": "deepgd-lenet1",
        "deepgd-lenet4": WEAK_FASHION,
        "deepgd-resnet20": "resnet50",
        WEAK_FASHION: "deepgd-lenet4",
        "mlp-fashion-mnist": "deepgd-lenet4",
        "convnet-fashion-mnist": "deepgd-lenet4",
        "mlp-letter": None,
        "transformer-newsgroups": None,
        "vgg16_bn": "resnet50",
        "resnet50": "mobilenet_v2",
        "mobilenet_v2": "resnet50",
        "lstm": None,
    },
}
# Subjects that no choice was made on.
KEPT_OUT = ("mlp-letter", "transformer-newsgroups", "mobilenet_v2")


def plan(scale: Scale) -> list[Job]:
    """Plan a job for each subject."""
    return [
        Job(
            name=f"{NAME}.{subject}",
            experiments=(NAME,),
            compute=select,
            parameters={
                "subject": subject,
                "other": other,
                "pools": POOLS,
                "searched": SEARCHED,
                "labels": LABELS,
            },
            work=scale.training + 3 * scale.test,
            rank=110,
            kind=NAME,
        )
        for subject, other in _SUBJECTS[FULL.name if scale.name == FULL.name else SMOKE.name].items()
    ]


def select(
    context: ExperimentContext, subject: str, other: str | None, pools: int, searched: int, labels: int
) -> dict[str, Any]:
    """Return, for every test set, the figures of every order in each of many random half pools.

    Args:
        context: scale, device and seed.
        subject: by name.
        other: a network for the same inputs, whose features tell clusters of faults.
        pools: how many half pools.
        searched: in how many of them the slow greedy orders are made.
        labels: labelled inputs of a pool that weights are learnt from, at most a fifth of it.
    """
    found = measured(context, subject, searched)
    beside = {} if other is None else measured(context, other, searched)
    sets = {}
    for name, strength in STRENGTHS.items():
        features = beside[name].columns["features"] if beside else None
        sets[name] = judge(context, found[name], strength, pools, searched, labels, features)
    alone, ranking = np.asarray(found[NOMINAL].columns["seconds"]).tolist()
    return {
        "sets": {name: own for name, own in sets.items() if own is not None},
        "training error": round(found[NOMINAL].scalar("training error"), 5),
        "seconds": {"the network alone": round(alone, 4), "ranking": round(ranking, 4)},
    }

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
from neuralcov_lab.experiments.selecting.reading import SENTENCES, read_features
from neuralcov_lab.experiments.selecting.sentences import sentences
from neuralcov_lab.experiments.selecting.shifts import NOMINAL, STRENGTHS
from neuralcov_lab.experiments.selecting.strangers import strangers

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
        "transformer-newsgroups": SENTENCES,
        "vgg16_bn": "resnet50",
        "resnet50": "mobilenet_v2",
        "mobilenet_v2": "resnet50",
        "lstm": SENTENCES,
    },
}
# Data whose texts a published sentence encoder reads, which has to be fetched.
_SENTENCES: dict[str, tuple[str, ...]] = {"smoke": (), "full": ("newsgroups", "imdb")}
# Subjects that no choice was made on; the LSTM was measured after all choices.
KEPT_OUT = ("mlp-letter", "transformer-newsgroups", "mobilenet_v2", "lstm")


def plan(scale: Scale) -> list[Job]:
    """Plan a job for each subject, and for each data set that the sentence encoder reads."""
    size = FULL.name if scale.name == FULL.name else SMOKE.name
    subjects = [
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
        for subject, other in _SUBJECTS[size].items()
    ]
    return (
        subjects
        + [
            Job(
                name=f"{NAME}.sentences-{data}",
                experiments=(NAME,),
                compute=sentences,
                parameters={"data": data, "pools": POOLS, "labels": LABELS},
                work=scale.training + 3 * scale.test,
                rank=111,
                kind="select sentences",
            )
            for data in _SENTENCES[size]
        ]
        + [
            Job(
                name=f"{NAME}.strangers",
                experiments=(NAME,),
                compute=strangers,
                parameters={"known": 3_000, "usual": 900, "strange": 100},
                work=4_000,
                rank=112,
                kind="select strangers",
            )
            for _ in _SENTENCES[size][:1]
        ]
    )


def select(
    context: ExperimentContext, subject: str, other: str | None, pools: int, searched: int, labels: int
) -> dict[str, Any]:
    """Return, for every test set, the figures of every order in each of many random half pools.

    Args:
        context: scale, device and seed.
        subject: by name.
        other: a network for the same inputs, or the sentence encoder, whose features tell clusters of faults.
        pools: how many half pools.
        searched: in how many of them the slow greedy orders are made.
        labels: labelled inputs of a pool that weights are learnt from, at most a fifth of it.
    """
    found = measured(context, subject, searched)
    features: dict[str, np.ndarray] = {}
    if other == SENTENCES:
        features = read_features(context, subject)
    elif other is not None:
        features = {name: own.columns["features"] for name, own in measured(context, other, searched).items()}
    sets = {
        name: judge(context, found[name], strength, pools, searched, labels, features.get(name))
        for name, strength in STRENGTHS.items()
    }
    alone, ranking = np.asarray(found[NOMINAL].columns["seconds"]).tolist()
    return {
        "sets": {name: own for name, own in sets.items() if own is not None},
        "training error": round(found[NOMINAL].scalar("training error"), 5),
        "seconds": {"the network alone": round(alone, 4), "ranking": round(ranking, 4)},
    }

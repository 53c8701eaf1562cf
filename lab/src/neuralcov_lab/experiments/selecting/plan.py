"""``reproduce select``: faults that orders of unlabelled inputs find, in half pools of plain and shifted test sets."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import neuralcov as nc
from neuralcov.rank.collecting import Gathered, Settings, gather
from neuralcov.rank.given import last_before_output
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.lcc.subjects import ProofSubject, proof_subject
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.scales import FULL, SMOKE, Scale
from neuralcov_lab.experiments.selecting.figures import figures
from neuralcov_lab.experiments.selecting.orders import GINI, OURS, Pool, additional
from neuralcov_lab.experiments.selecting.shifts import STRENGTHS, shifted

NAME = "select"
LEARNT = "learnt from labels"
POOLS, SEARCHED, LABELS = 20, 2, 500
# Subjects that no choice was made on.
KEPT_OUT = ("mlp-letter", "transformer-newsgroups", "mobilenet_v2")
_SUBJECTS = {
    "smoke": ("digits", "mlp-toy"),
    "full": (
        "convnet-fashion-mnist",
        "mlp-fashion-mnist",
        "mlp-letter",
        "transformer-newsgroups",
        "vgg16_bn",
        "resnet50",
        "mobilenet_v2",
        "lstm",
    ),
}


def plan(scale: Scale) -> list[Job]:
    """Plan a job for each subject."""
    return [
        Job(
            name=f"{NAME}.{subject}",
            experiments=(NAME,),
            compute=select,
            parameters={"subject": subject, "pools": POOLS, "searched": SEARCHED, "labels": LABELS},
            work=scale.training + 3 * scale.test,
            rank=110,
            kind=NAME,
        )
        for subject in _SUBJECTS[FULL.name if scale.name == FULL.name else SMOKE.name]
    ]


def select(context: ExperimentContext, subject: str, pools: int, searched: int, labels: int) -> dict[str, Any]:
    """Return, for every test set, the figures of every order in each of many random half pools.

    Args:
        context: scale, device and seed.
        subject: by name.
        pools: how many half pools.
        searched: in how many of them the slow greedy orders are made.
        labels: labelled inputs of a pool that weights are learnt from, at most a fifth of it.
    """
    own = proof_subject(context, subject)
    with quiet():
        judge = _Judge(context, own)
        sets = {name: judge.figures(strength, pools, searched, labels) for name, strength in STRENGTHS.items()}
    return {"sets": {name: found for name, found in sets.items() if found is not None}, "layer": judge.layer}


class _Judge:
    """Hold coverages of one subject, calibrated once."""

    def __init__(self, context: ExperimentContext, subject: ProofSubject) -> None:
        self._context, self._subject = context, subject
        batches = subject.batches(subject.train, context.scale.batch)
        probe = nc.Coverage(subject.model, [nc.NC()])
        run = next(iter(probe.runs(subject.batches(subject.train.take(slice(0, 10)), 10))))
        self.layer = last_before_output(cast(nc.Activations, run.activations), run.output)
        self._scoring = nc.Coverage(subject.model, [nc.DSC(layers=(self.layer,)), nc.LCC()])
        self._scoring.calibrate(batches, progress=False)
        self._covering = [
            nc.Coverage(subject.model, [criterion])
            for criterion in (nc.NC(0.75), nc.KMNC(100), nc.NBC(), nc.SNAC(), nc.TKNC(10))
        ]
        for coverage in self._covering:
            if coverage.criteria[0].learns:
                coverage.calibrate(batches, progress=False)

    def figures(self, strength: int, pools: int, searched: int, labels: int) -> dict[str, Any] | None:
        """Return the figures of one test set; ``None`` if it has hardly any fault."""
        context, subject = self._context, self._subject
        samples = shifted(context, subject.kind, subject.test, strength)
        batches = subject.batches(samples, context.scale.batch)
        found = gather(self._scoring, batches, Settings(every_score=True, progress=False))
        truth = samples.labels.cpu().numpy()
        wrong = found.columns["first"] != truth
        if wrong.sum() < 10:
            return None
        pool_scores, features = self._scores(found, batches)
        covered = {
            coverage.criteria[0].name: coverage.judge(batches, progress=False)[f"{coverage.criteria[0].name}.gain"]
            for coverage in self._covering
        }
        whole = {name: np.asarray(column, dtype=np.float64) for name, column in covered.items()}
        made: dict[str, list[dict[str, float]]] = {}
        rest: dict[str, list[dict[str, float]]] = {}
        for number in range(pools):
            rows = np.sort(context.rows(len(truth), len(truth) // 2, 223, strength, number).cpu().numpy())
            if not wrong[rows].any():
                continue
            pool = Pool(rows, pool_scores, found, features, whole)
            random = np.random.default_rng(context.combined_seed(227, strength, number))
            orders = pool.orders(random)
            if number < searched:
                orders |= self._searched(samples, rows, whole)
            for method, order in orders.items():
                made.setdefault(method, []).append(figures(wrong[order]))
            left = _with_labels(pool, truth, labels, random, orders)
            if wrong[left[LEARNT]].any():
                for method, order in left.items():
                    rest.setdefault(method, []).append(figures(wrong[order]))
        return {"inputs": len(truth), "faults": int(wrong.sum()), "orders": made, "after labels": rest}

    def _scores(self, found: Gathered, batches: Any) -> tuple[dict[str, np.ndarray], Tensor]:
        """Return all scores of a test set, and what the last layer before the output gave."""
        features, most = [], []
        for run in self._scoring.runs(batches, progress=False):
            activations = cast(nc.Activations, run.activations)
            features.append(activations.layers[self.layer].cpu())
            output = run.output.logits if hasattr(run.output, "logits") else run.output
            wide = output.detach().double().cpu()
            if wide.dim() == 1 or wide.shape[1] == 1:
                wide = torch.stack([torch.zeros(len(wide)).double(), wide.reshape(-1)], dim=1)
            most.append(wide.softmax(1).amax(1))
        return {**found.columns, "most": torch.cat(most).numpy()}, torch.cat(features)

    def _searched(self, samples: Any, rows: np.ndarray, covered: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the orders by additional coverage."""
        subject, batch = self._subject, self._context.scale.batch
        part = samples.take(torch.from_numpy(rows).to(samples.labels.device))
        orders = {}
        for coverage in self._covering:
            name = coverage.criteria[0].name

            def greedy(_: np.ndarray, coverage: nc.Coverage = coverage) -> list[int]:
                return nc.minimise(coverage, subject.batches(part, batch), 1.0, progress=False).positions

            orders[f"{name} CAM"] = additional(rows, covered[name], greedy)
        return orders


def _with_labels(
    pool: Pool, truth: np.ndarray, labels: int, random: np.random.Generator, orders: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the order learnt from some labels, and others of the inputs that are left without one."""
    places = random.choice(len(pool.rows), min(labels, len(pool.rows) // 5), replace=False)
    known = {int(place): int(truth[pool.rows[place]]) for place in places}
    gone = pool.rows[places]
    left = {method: order[~np.isin(order, gone)] for method, order in orders.items() if method in (GINI, OURS)}
    return {LEARNT: pool.rows[pool.ours(known)], **left}

"""Figures and orders of ``select`` against brute force, and a whole run on a toy."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

from neuralcov.rank.collecting import ALL_SCORES
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.named_subjects import IMAGES
from neuralcov_lab.experiments.scales import FULL, SMOKE
from neuralcov_lab.experiments.selecting.clotho import clotho_order
from neuralcov_lab.experiments.selecting.clusters import NOISE, clusters_found, fault_clusters
from neuralcov_lab.experiments.selecting.figures import apfd, difference, figures, found_at
from neuralcov_lab.experiments.selecting.judging import CLOTHO, LEARNT
from neuralcov_lab.experiments.selecting.meter import COVERING
from neuralcov_lab.experiments.selecting.named import WEAK_FASHION
from neuralcov_lab.experiments.selecting.orders import GINI, OURS, Pool
from neuralcov_lab.experiments.selecting.page import select_lead, select_page
from neuralcov_lab.experiments.selecting.plan import KEPT_OUT, plan, select
from neuralcov_lab.experiments.selecting.plots import select_plot
from neuralcov_lab.experiments.selecting.shifts import corrupted, shifted
from neuralcov_lab.experiments.selecting.summary import Gain, JudgedSet, more_faults, targets


def test_apfd_is_the_area_under_the_faults_found():
    random = np.random.default_rng(0)
    for _ in range(20):
        faulty = random.random(30) < 0.2
        faulty[0] = True
        found = np.concatenate([[0], faulty.cumsum() / faulty.sum()])
        assert apfd(faulty) == pytest.approx(((found[1:] + found[:-1]) / 2).mean())


def test_shares_are_of_all_faults():
    faulty = np.array([True] * 5 + [False] * 95)
    assert [found_at(faulty, percent) for percent in (1, 3, 10)] == [0.2, 0.6, 1.0]
    assert list(figures(faulty)) == ["apfd", "at 1 %", "at 3 %", "at 5 %", "at 10 %"]
    apart, low, high = difference([1, 2, 3], [0, 0, 0])
    assert apart == 2
    assert low < 2 < high


def test_orders_follow_the_scores_and_sums_of_ranks():
    random = np.random.default_rng(0)
    columns = {name: random.random(60) for name in (*ALL_SCORES, "most", "fast")}
    columns |= {f"{criterion.name} CTM": random.integers(0, 9, 60) for criterion in COVERING}
    columns |= {name: random.integers(0, 3, 60) for name in ("first", "second")}
    columns["trust"][7] = np.nan
    rows = np.arange(0, 60, 2)
    orders = Pool(rows, columns).orders(random)
    assert all(sorted(order.tolist()) == rows.tolist() for order in orders.values())
    assert orders[GINI].tolist() == rows[np.argsort(-columns["gini"][rows])].tolist()
    assert orders["margin"].tolist() == rows[np.argsort(columns["margin"][rows])].tolist()
    trust = columns["trust"][rows]
    ranks = 2.5 * stats.rankdata(-columns["gini"][rows]) + stats.rankdata(trust)
    assert not np.isnan(trust).any()
    assert orders[OURS].tolist() == rows[np.argsort(ranks, kind="stable")].tolist()
    doubled = 2 * stats.rankdata(-columns["gini"][rows]) + stats.rankdata(columns["trust"][rows])
    assert orders["2 × DeepGini + trust"].tolist() == rows[np.argsort(doubled, kind="stable")].tolist()
    left = Pool(rows, columns).ours({0: 99, 1: int(columns["first"][rows[1]])})
    assert sorted(left.tolist()) == list(range(2, 30))


def test_clusters_of_faults_are_counted_once():
    random = np.random.default_rng(0)
    features = np.concatenate([random.normal(0, 0.1, (30, 2)), random.normal(9, 0.1, (30, 2)), random.random((40, 2))])
    wrong = np.arange(100) < 60
    clusters = fault_clusters(features, wrong)
    assert set(clusters[wrong].tolist()) - {NOISE} == {0, 1}
    assert (clusters[~wrong] == NOISE).all()
    assert clusters_found(clusters, [1, 31]) == {"clusters at 1": 0.5, "clusters at 31": 1.0}
    assert clusters_found(clusters, [51]) == {}
    assert clusters_found(np.full(9, NOISE), [1]) == {}
    assert (fault_clusters(features, np.arange(100) < 9) == NOISE).all()


def test_clotho_asks_for_as_many_labels_as_allowed_and_puts_the_unlikely_first():
    random = np.random.default_rng(0)
    features = np.concatenate([random.normal(0, 1, (180, 3)), random.normal(8, 0.5, (20, 3))])
    asked, order = clotho_order(features, np.arange(200) >= 180, 40, random)
    assert len(asked) == 40
    assert sorted([*asked.tolist(), *order.tolist()]) == list(range(200))
    left = int((order >= 180).sum())
    assert (order[:left] >= 180).all()


def test_shifts_keep_labels_and_range():
    pixels = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for strength in (1, 2):
        moved = corrupted(pixels, strength, torch.Generator().manual_seed(1))
        assert moved.shape == pixels.shape
        assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
        assert ((moved - pixels).abs().amax((1, 2, 3)) > 0).all()
    context = ExperimentContext(SMOKE)
    assert shifted(context, IMAGES, "as it is", 0) == "as it is"


@pytest.fixture
def done(tmp_path, monkeypatch):
    """A job on a toy, as its file would hold it."""
    monkeypatch.setenv("NEURALCOV_DATA", str(tmp_path))
    result = select(ExperimentContext(SMOKE), "mlp-toy", None, 3, 1, 50)
    return JobResult(
        "select.mlp-toy", {"parameters": {"subject": "mlp-toy"}, "experiments": ["select"], "result": result}
    )


def test_a_run_on_a_toy_and_its_page(done):
    name, found = next(iter(done.result["sets"].items()))
    assert len(found["orders"]["random"]["apfd"]) == len(found["after labels"][LEARNT]["apfd"]) == 3
    # A pool all of whose faults were labelled has nothing to find any more.
    assert 1 <= len(found["after Clotho's labels"][CLOTHO]["at 5 %"]) <= 3
    assert len(found["orders"]["KMNC(100) CAM"]["apfd"]) == 1
    values = [value for method in found["orders"].values() for own in method.values() for value in own]
    assert all(0 <= value <= 1 for value in values)
    json.dumps(done.result)
    page, lead = select_page([done], []), select_lead([done])
    assert f"| mlp-toy | {name} | {found['faults']:,} of 500 |" in page
    assert "faults among the first 5 % than DeepGini's" in lead
    assert "| without labels, mean at least 2 points above |" in page
    assert "at most 3 × the forward pass: mlp-toy" in page
    assert select_plot([done]) is not None
    assert select_plot([]) is None
    assert [job.name for job in plan(SMOKE)] == ["select.digits", "select.mlp-toy"]
    subjects = {job.parameters.get("subject") for job in plan(FULL)}
    assert subjects >= {*KEPT_OUT, "resnet50", "deepgd-lenet1", WEAK_FASHION}


def _set(subject: str, ours: list[float], gini: list[float]) -> JudgedSet:
    orders = {OURS: {"apfd": ours, "at 5 %": ours}, GINI: {"apfd": gini, "at 5 %": gini}}
    learnt = {**orders, LEARNT: orders[OURS]}
    return JudgedSet(
        subject, "nominal", {"orders": orders, "after labels": learnt, "inputs": 9, "faults": 3, "clusters": 0}
    )


def test_targets_are_judged_by_mean_and_worst_set():
    sets = [_set("a", [0.9, 0.8], [0.8, 0.8]), _set("b", [0.5, 0.5], [0.5, 0.52])]
    gain = Gain.of(sets, "orders", OURS)
    assert gain.mean == pytest.approx(2.0)
    assert gain.least == pytest.approx(-1.0)
    assert (gain.where, gain.better, gain.sets) == ("b, nominal", 1, 2)
    assert gain.low <= gain.mean <= gain.high
    assert more_faults(sets, "orders", OURS) == pytest.approx((0.85 + 0.5) / (0.8 + 0.51) - 1)
    reached = [target.reached for target in targets(sets, [("a", 2.9), ("b", 3.1)])]
    assert reached == [True, True, False, False, True, False]
    assert JudgedSet("mlp-letter", "nominal", {}).label == "mlp-letter*, nominal"

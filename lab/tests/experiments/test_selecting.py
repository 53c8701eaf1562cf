"""Figures and orders of ``select`` against brute force, and a whole run on a toy."""

import numpy as np
import pytest
import torch

from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.named_subjects import IMAGES
from neuralcov_lab.experiments.scales import SMOKE
from neuralcov_lab.experiments.selecting.figures import apfd, difference, figures, found_at
from neuralcov_lab.experiments.selecting.orders import additional, farthest_first
from neuralcov_lab.experiments.selecting.page import select_page
from neuralcov_lab.experiments.selecting.plan import LEARNT, plan, select
from neuralcov_lab.experiments.selecting.shifts import corrupted, shifted


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


def test_farthest_first_is_greedy():
    points = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double()
    order = [int((points - points.mean(0)).norm(dim=1).argmax())]
    while len(order) < 40:
        distances = torch.cdist(points, points[order]).amin(1)
        distances[order] = -1
        order.append(int(distances.argmax()))
    assert farthest_first(points).tolist() == order


def test_additional_coverage_goes_on_with_what_each_covers():
    rows, alone = np.array([4, 6, 8, 9]), np.arange(10.0)
    assert additional(rows, alone, lambda given: [1]).tolist() == [6, 9, 8, 4]


def test_shifts_keep_labels_and_range():
    pixels = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for strength in (1, 2):
        moved = corrupted(pixels, strength, torch.Generator().manual_seed(1))
        assert moved.shape == pixels.shape
        assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
        assert ((moved - pixels).abs().amax((1, 2, 3)) > 0).all()
    context = ExperimentContext(SMOKE)
    assert shifted(context, IMAGES, "as it is", 0) == "as it is"


def test_a_run_on_a_toy_and_its_page():
    context = ExperimentContext(SMOKE)
    result = select(context, "mlp-toy", 3, 1, 50)
    name, found = next(iter(result["sets"].items()))
    assert len(found["orders"]["random"]) == len(found["after labels"][LEARNT]) == 3
    assert len(found["orders"]["KMNC(100) CAM"]) == 1
    assert all(0 <= pool["apfd"] <= 1 for pools in found["orders"].values() for pool in pools)
    job = JobResult("select.mlp-toy", {"parameters": {"subject": "mlp-toy"}, "result": result})
    page = select_page([job], [])
    assert f"| mlp-toy | {name} | 500 |" in page
    assert "DeepGini" in page
    assert "no test set" not in page.lower()
    assert [job.name for job in plan(SMOKE)] == ["select.digits", "select.mlp-toy"]

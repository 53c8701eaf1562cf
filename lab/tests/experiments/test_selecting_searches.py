"""Greedy searches of ``select`` against brute force, and what is measured of a set against what the library says."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

import neuralcov as nc
from neuralcov.rank.collecting import ALL_SCORES, Settings, gather
from neuralcov.rank.given import OutputListener
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.scales import SMOKE
from neuralcov_lab.experiments.selecting.fast import fast_logits
from neuralcov_lab.experiments.selecting.measuring import measured
from neuralcov_lab.experiments.selecting.meter import HIDDEN, Learning, pool_rows
from neuralcov_lab.experiments.selecting.named import subject_of
from neuralcov_lab.experiments.selecting.orders import PROMPTS, Pool
from neuralcov_lab.experiments.selecting.searches import (
    additional_cells,
    facility_location,
    farthest_first,
    geometric_diversity,
)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).double()


def test_additional_coverage_takes_what_adds_most() -> None:
    cells = torch.randint(0, 4, (12, 30), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    covered: set[tuple[int, int]] = set()
    own = [{(neuron, int(cell)) for neuron, cell in enumerate(column) if cell} for column in cells.T]
    order: list[int] = []
    while any(each - covered for each in own):
        best = max(range(30), key=lambda place: (len(own[place] - covered), -place))
        order.append(best)
        covered |= own[best]
    found = additional_cells(cells).tolist()
    assert found[: len(order)] == order
    assert sorted(found) == list(range(30))
    rest = [len(own[place]) for place in found[len(order) :]]
    assert rest == sorted(rest, reverse=True)


def test_k_centre_goes_farthest() -> None:
    points = _random(40, 3)
    order = [int((points - points.mean(0)).norm(dim=1).argmax())]
    while len(order) < 40:
        distances = torch.cdist(points, points[order]).amin(1)
        distances[order] = -1
        order.append(int(distances.argmax()))
    squares = torch.cdist(points, points).square()
    assert farthest_first(squares, (points - points.mean(0)).square().sum(1)).tolist() == order


def test_facility_location_is_greedy() -> None:
    similar = (_random(60, 60) + _random(60, 60).T).clamp(min=0)
    order: list[int] = []
    served = torch.zeros(60).double()
    for _ in range(20):
        gains = (similar - served[:, None]).clamp(min=0).sum(0)
        gains[order] = -1
        order.append(int(gains.argmax()))
        served = torch.maximum(served, similar[:, order[-1]])
    found = facility_location(similar, 20).tolist()
    assert found[:20] == order
    assert sorted(found) == list(range(60))


def test_geometric_diversity_multiplies_the_determinant_most() -> None:
    rows = torch.nn.functional.normalize(_random(12, 5), dim=1)
    similar = rows @ rows.T
    found = geometric_diversity(similar, 4).tolist()
    ridged = similar + 1e-3 * torch.eye(12).double()
    for count in (1, 2, 3, 4):
        before = found[: count - 1]
        worth = {
            each: float(torch.linalg.det(ridged[[*before, each]][:, [*before, each]]))
            for each in range(12)
            if each not in before
        }
        assert worth[found[count - 1]] == pytest.approx(max(worth.values()), rel=1e-9)
    assert sorted(found) == list(range(12))


def test_pruned_features_are_the_least_important_of_the_decided_class() -> None:
    head = torch.nn.Linear(4, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[4.0, 0.1, -3.0, 0.0], [0.0, 0.0, 0.0, 2.0]]))
    features = torch.ones(6, 4)
    decided = torch.tensor([0, 0, 0, 1, 1, 1])
    pruned = fast_logits(head, features, torch.ones(6, dtype=torch.bool), decided, share=0.5)
    # Of class 0 the features 0 and 2 move its score most, and so they do for class 1, whose mean they lower.
    assert pruned(torch.ones(1, 4), torch.tensor([0])).tolist() == [[1.0, 0.0]]


def test_fast_reads_one_logit_as_that_of_the_second_of_two_classes() -> None:
    one, two = torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)
    with torch.no_grad():
        two.weight[0], two.bias[0] = 0, 0
        two.weight[1:], two.bias[1:] = one.weight, one.bias
    features, decided = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
    right = torch.ones(8, dtype=torch.bool)
    of_one, of_two = (fast_logits(head, features, right, decided, share=0.5)(features, decided) for head in (one, two))
    assert torch.equal(of_one, of_two)


def test_a_set_is_measured_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NEURALCOV_DATA", str(tmp_path))
    context = ExperimentContext(SMOKE)
    found = measured(context, "mlp-toy", 2)["nominal"]
    columns = found.columns
    assert len(columns["truth"]) == len(columns["gini"]) == 500
    assert (columns["most"] <= 1).all()
    assert found.scalar("training error") < 0.5
    assert (columns["seconds"] > 0).all()
    for name, order in found.orders.items():
        assert order.shape == (2, 250), name
        assert sorted(order[0].tolist()) == list(range(250)), name
    assert [len(pool_rows(context, 500, 0, number)) for number in (0, 1)] == [250, 250]
    first, second = (set(pool_rows(context, 500, 0, number).tolist()) for number in (0, 1))
    assert first != second
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "select").iterdir()}
    again = measured(context, "mlp-toy", 2)["nominal"]
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "select").iterdir()}
    for name, column in columns.items():
        assert np.array_equal(column, again.columns[name], equal_nan=True), name


def test_scores_are_those_that_ranking_gathers(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NEURALCOV_DATA", str(tmp_path))
    context = ExperimentContext(SMOKE)
    columns = measured(context, "mlp-toy", 1)["nominal"].columns
    subject = subject_of(context, "mlp-toy")
    coverage = nc.Coverage(subject.model, [nc.DSC(), nc.LCC()])
    settings = Settings(every_score=True, training=subject.train.batches(100), progress=False)
    found = gather(coverage, subject.test.batches(100), settings).columns
    for name in (*ALL_SCORES, "first", "second"):
        np.testing.assert_allclose(columns[name], found[name], rtol=1e-4, atol=1e-6, err_msg=name)
    cov = nc.Coverage(subject.model, [nc.DSC()])
    queue = nc.rank(cov, subject.test.batches(100), training=subject.train.batches(100), progress=False)
    whole = Pool(np.arange(len(subject.test)), columns)
    assert whole.ours().tolist() == queue.positions


def test_texts_are_also_ranked_by_hidden_states_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NEURALCOV_DATA", str(tmp_path))
    context = ExperimentContext(SMOKE)
    columns = measured(context, "transformer-toy", 1)["nominal"].columns
    subject = subject_of(context, "transformer-toy")
    scorers = Learning(("mdsc", "rarity"), by_class=False)
    coverage, listener = nc.Coverage(subject.model, [nc.DSC()]), OutputListener(subject.model)

    def runs(samples):
        with listener.listening():
            for run in coverage.runs(subject.batches(samples, 100), progress=False):
                yield run, listener.joined(run)

    for run, batch in runs(subject.train):
        scorers.observe(run, batch)
    taught = scorers.taught()[0]
    found = torch.cat([taught.score("mdsc", batch) for _, batch in runs(subject.test)])
    np.testing.assert_allclose(columns[HIDDEN], found.numpy(), rtol=1e-4)
    orders = Pool(np.arange(100), columns).orders(np.random.default_rng(0))
    ranks = stats.rankdata(-columns[HIDDEN][:100]) + stats.rankdata(-columns["rarity"][:100])
    assert orders[PROMPTS].tolist() == np.argsort(ranks, kind="stable").tolist()


def test_orders_of_cells_are_of_all_inputs() -> None:
    for cells, seed in itertools.product((2, 5), (0, 1)):
        drawn = torch.randint(0, cells, (3, 8), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
        assert sorted(additional_cells(drawn).tolist()) == list(range(8))

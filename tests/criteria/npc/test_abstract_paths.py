import numpy as np
import pytest
import torch

from neuralcov.core import memory as sizes
from neuralcov.criteria.npc.abstract_paths import AbstractPaths, Members, abstract_paths, distances, furthest
from neuralcov.criteria.npc.paths import PathRows
from neuralcov.kernels.hashing import pack
from neuralcov.statistics.traces import TraceStore

WIDTHS = (3, 2)


def rows_of(bits, classes):
    bits = torch.tensor(bits).bool()
    return PathRows(torch.tensor(classes), torch.arange(len(bits)), pack(bits))


def test_an_abstract_path_keeps_what_beta_of_the_members_share():
    rows = rows_of([[1, 1, 0, 1, 0], [1, 0, 0, 1, 0], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1]], [4, 4, 4, 4])
    for beta, expected in [(0.7, [1, 1, 0, 1, 0]), (0.75, [1, 1, 0, 1, 0]), (0.76, [0] * 5), (0.2, [1, 1, 0, 1, 1])]:
        abstract, numbers = abstract_paths(rows, torch.tensor([4]), 5, 1, beta)
        assert abstract.paths[0, 0].int().tolist() == expected
        assert abstract.sizes.tolist() == [[4]]
        assert numbers.tolist() == [0, 1, 2, 3]


def test_a_share_that_is_beta_exactly_is_enough():
    """7 of 10 is at least 0.7, in whatever order that is computed."""
    for members in (10, 20, 30, 70, 90, 110):
        bits = np.zeros((members, 5), int)
        bits[: members * 7 // 10, 2] = 1
        abstract, _ = abstract_paths(rows_of(bits, [0] * members), torch.tensor([0]), 5, 1, 0.7)
        assert abstract.paths[0, 0].int().tolist() == [0, 0, 1, 0, 0]


def test_classes_are_clustered_apart_and_may_have_no_path():
    rows = rows_of([[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0]], [7, 2, 7, 7])
    abstract, numbers = abstract_paths(rows, torch.tensor([2, 5, 7]), 5, 3, 0.7)
    assert abstract.sizes.sum(1).tolist() == [1, 0, 3]
    assert sorted(abstract.sizes[2].tolist()) == [0, 1, 2]
    assert numbers[0] == 1
    assert sorted(numbers[1:].tolist()) == [0, 2, 3]
    index, known = abstract.place(torch.tensor([7, 5, 2, 3, -1, 9]))
    assert known.tolist() == [True, False, True, False, False, False]
    assert index[[0, 2]].tolist() == [2, 0]


def made(paths, sizes_, classes=(0,)):
    return AbstractPaths(torch.tensor(classes), torch.tensor(paths).bool(), torch.tensor(sizes_))


def test_likeness_is_jaccard_part_by_part():
    abstract = made([[[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]], [[2, 1, 1]])
    bits = torch.tensor([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0]]).bool()
    index = torch.zeros(2, dtype=torch.int64)
    whole = abstract.likeness(bits, index, (5,))
    torch.testing.assert_close(whole[:, :, 0], torch.tensor([[1 / 3, 0, 2 / 5], [0, 0, 0]]).double())
    layers = abstract.likeness(bits, index, WIDTHS)
    torch.testing.assert_close(layers[0], torch.tensor([[1 / 2, 0], [0, 0], [1 / 3, 1 / 2]]).double())
    assert abstract.likeness(bits[:0], index[:0], WIDTHS).shape == (0, 3, 2)


def test_the_nearest_path_is_the_first_of_equals_and_one_that_exists():
    abstract = made([[[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]], [[0, 3, 2]])
    bits = torch.tensor([[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]).bool()
    assert abstract.nearest(bits, torch.zeros(3, dtype=torch.int64), WIDTHS).tolist() == [1, 1, 1]


@pytest.fixture
def trained():
    """Two paths of one class, two training inputs behind the first and one behind the second."""
    abstract = made([[[1, 0, 1, 0, 1], [0, 1, 0, 0, 0]]], [[2, 1]])
    values = torch.tensor([[0.0, 9, 0, 9, 0], [5, 5, 5, 5, 5], [3, 9, 4, 9, 1]])
    traces = TraceStore(("a", "b"), (values,), None, None, 1 << 30, "cpu")
    return abstract, Members(traces, torch.tensor([0, 2, 1]), torch.zeros(2)), values


def test_distances_are_least_over_members_and_over_the_paths_neurons(trained):
    abstract, members, _ = trained
    inputs = torch.tensor([[3.0, 0, 4, 0, 0], [3, 0, 4, 0, 0], [0, 6, 0, 0, 0], [1, 1, 1, 1, 1]])
    found = distances(abstract, members, inputs, torch.tensor([0, 0, 1, -1]), WIDTHS)
    # Of the second path's neurons none lies in the second layer: nothing to tell inputs apart.
    expected = torch.tensor([[0, 0], [0, 0], [1, 0], [torch.inf, torch.inf]]).double()
    assert torch.equal(found, expected)


def test_small_distances_keep_their_digits(trained):
    abstract, members, values = trained
    traces = TraceStore(("a", "b"), (values + 1e4,), None, None, 1 << 30, "cpu")
    inputs = (values[:1] + 1e4).double()
    inputs[0, 0] += 2**-20
    found = distances(abstract, Members(traces, members.numbers, members.upper), inputs, torch.tensor([0]), WIDTHS)
    assert found[0, 0] == 2**-20


def test_the_furthest_leaves_each_input_itself_out(trained, monkeypatch):
    abstract, members, _ = trained
    rows = rows_of([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0], [1, 0, 1, 0, 1]], [0, 0, 0])
    # The first and third input are 5 and 1 apart; the second is alone behind its path.
    assert furthest(abstract, members, rows, WIDTHS).tolist() == [5, 1]
    monkeypatch.setattr(sizes, "BLOCK_ELEMENTS", {"cpu": 1})
    assert furthest(abstract, members, rows, WIDTHS).tolist() == [5, 1]


def test_blocks_do_not_matter(trained, monkeypatch):
    abstract, members, _ = trained
    inputs, chosen = torch.randn(9, 5), torch.tensor([0, 1, 0, -1, 1, 1, 0, 0, 1])
    bits = torch.rand(9, 5) < 0.5
    whole = distances(abstract, members, inputs, chosen, WIDTHS)
    alike = abstract.likeness(bits, torch.zeros(9, dtype=torch.int64), WIDTHS)
    monkeypatch.setattr(sizes, "BLOCK_ELEMENTS", {"cpu": 3})
    assert torch.equal(distances(abstract, members, inputs, chosen, WIDTHS), whole)
    assert torch.equal(abstract.likeness(bits, torch.zeros(9, dtype=torch.int64), WIDTHS), alike)

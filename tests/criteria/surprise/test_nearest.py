import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.criteria.surprise.nearest import NeighbourIndex, QueryGroup, nearest, nearest_in_groups


def corpus(rows, blocks=3):
    numbers = torch.arange(len(rows))
    return NeighbourIndex(
        lambda: zip(torch.tensor_split(numbers, blocks), torch.tensor_split(rows, blocks), strict=True),
        lambda wanted: rows[wanted],
        rows.double().mean(0).float(),
    )


def brute_force(queries, rows, forbidden=None):
    apart = np.sqrt(((queries[:, None].double() - rows[None].double()) ** 2).sum(2).numpy())
    if forbidden is not None:
        apart = np.where(forbidden, np.inf, apart)
    return apart.argmin(1), apart.min(1)


@given(st.integers(0, 2**31), st.sampled_from(["smooth", "ties", "copies", "offset", "huge"]), st.integers(1, 5))
def test_equals_a_direct_search(seed, flavour, blocks):
    generator = torch.Generator().manual_seed(seed)
    rows, queries = (torch.randn(n, 3, generator=generator) for n in (40, 9))
    if flavour == "ties":
        rows, queries = rows.round(), queries.round()
    if flavour == "copies":
        # More equal rows than candidates are kept: only an exact scan finds the first of them.
        rows, queries = rows[:2].repeat(20, 1), queries.clone()
        queries[0] = rows[1]
    if flavour == "offset":
        rows, queries = rows + 5000, queries + 5000
    if flavour == "huge":
        # Squares of some numbers are near overflow in float32 or beyond it.
        scales = 10.0 ** torch.randint(-2, 38, (49, 1), generator=generator)
        scales[torch.rand(49, generator=generator) < 0.5] = 1
        rows, queries = rows * scales[:40], queries * scales[40:]
    found = nearest(queries, corpus(rows, blocks))
    expected, measured = brute_force(queries, rows)
    assert found.numbers.tolist() == expected.tolist()
    assert set(expected.tolist()) <= set(found.possible.tolist())
    assert found.possible.tolist() == sorted(set(found.possible.tolist()))
    np.testing.assert_allclose(found.distances.numpy(), measured, rtol=1e-14)


@pytest.mark.parametrize("copies", [False, True])
def test_each_query_within_its_group(copies):
    generator = torch.Generator().manual_seed(0)
    rows, queries = (torch.randn(n, 4, generator=generator) for n in (60, 20))
    classes, own = (torch.randint(3, (n,), generator=generator) for n in (60, 20))
    if copies:
        # Ten equal rows of a class, more than candidates are kept, nearest to some of the queries.
        rows[(classes == 1).nonzero()[:10, 0]] = queries[own == 1][0]
    members = {label: (classes == label).nonzero()[:, 0] for label in (0, 1)}
    groups = [
        QueryGroup((own == label).nonzero()[:, 0], lambda some=some: [(part, rows[part]) for part in some.split(7)])
        for label, some in members.items()
    ]
    found = nearest_in_groups(queries, corpus(rows), groups)
    expected, measured = brute_force(queries, rows, (own[:, None] != classes).numpy())
    assert set(found.numbers.tolist()) <= {-1, *found.possible.tolist()}
    for query, label in enumerate(own.tolist()):
        assert found.numbers[query] == (expected[query] if label < 2 else -1)
        assert found.distances[query].item() == pytest.approx(measured[query] if label < 2 else np.inf, rel=1e-14)


def test_a_class_left_out():
    generator = torch.Generator().manual_seed(0)
    rows, queries = (torch.randn(n, 4, generator=generator) for n in (60, 20))
    classes, own = (torch.randint(3, (n,), generator=generator) for n in (60, 20))
    everyone = NeighbourIndex(corpus(rows).stream, corpus(rows).fetch, rows.mean(0), classes)
    found = nearest(queries, everyone, own)
    expected, measured = brute_force(queries, rows, (own[:, None] == classes).numpy())
    assert found.numbers.tolist() == expected.tolist()
    np.testing.assert_allclose(found.distances.numpy(), measured, rtol=1e-14)
    alone = NeighbourIndex(everyone.stream, everyone.fetch, rows.mean(0), torch.zeros_like(classes))
    found = nearest(queries, alone, torch.zeros_like(own))
    assert found.numbers.tolist() == [-1] * 20
    assert found.distances.isinf().all()


def test_roots_are_rounded_correctly():
    """A ratio of distances may be where a bucket begins: a digit too low would put it into the one before."""
    queries = torch.arange(1, 2000.0)[:, None] * torch.ones(3)
    found = nearest(queries, corpus(torch.zeros(1, 3), 1))
    assert found.distances.tolist() == np.sqrt(3 * np.arange(1, 2000) ** 2).tolist()


def test_many_queries_are_answered_in_parts(monkeypatch):
    monkeypatch.setattr("neuralcov.criteria.surprise.nearest.QUERY_ELEMENTS", 12)
    rows, queries = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) for n in (30, 10))
    found = nearest(queries, corpus(rows))
    assert found.numbers.tolist() == brute_force(queries, rows)[0].tolist()
    assert nearest(queries[:0], corpus(rows)).numbers.shape == (0,)


@pytest.mark.parametrize("error", [1e-4, 1e-2])
def test_a_poor_product_changes_no_result(monkeypatch, error):
    """The product is off by as much as its bound allows; answers stay exact."""
    generator = torch.Generator().manual_seed(1)
    rows, queries = (torch.randn(n, 50, generator=generator) for n in (500, 40))

    def poor(left, right):
        if left.dtype == torch.float64:
            return left @ right.T  # asked where the fast product leaves a doubt
        size = left.norm(dim=1)[:, None] * right.norm(dim=1)
        return left @ right.T + error * size * (2 * torch.rand(len(left), len(right), generator=generator) - 1)

    monkeypatch.setattr("neuralcov.criteria.surprise.nearest.product", poor)
    monkeypatch.setattr("neuralcov.criteria.surprise.nearest.PRODUCT_ERROR", error)
    found = nearest(queries, corpus(rows))
    expected, measured = brute_force(queries, rows)
    assert found.numbers.tolist() == expected.tolist()
    np.testing.assert_allclose(found.distances.numpy(), measured, rtol=1e-14)

from fractions import Fraction

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from neuralcov.core import memory as sizes
from neuralcov.criteria.npc.abstract_paths import k_means, seeds


def random_bits(seed, rows, bits, groups=3, noise=0.15):
    """Bit vectors that scatter around a few patterns."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((groups, bits)) < 0.4
    return patterns[rng.integers(groups, size=rows)] ^ (rng.random((rows, bits)) < noise)


def inertia(bits, labels):
    return sum(((bits[labels == k] - bits[labels == k].mean(0)) ** 2).sum() for k in np.unique(labels))


def brute_force(bits, clusters, rounds=100):
    """The definition, in fractions: no distance is ever rounded."""
    rows = [[int(bit) for bit in row] for row in bits]
    draws = torch.rand(clusters, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()

    def apart(row, centre):
        return sum((a - b) ** 2 for a, b in zip(row, centre, strict=True))

    centres = [[Fraction(bit) for bit in rows[int(draws[0] * len(rows))]]]
    for draw in draws[1:]:
        weights = [min(apart(row, centre) for centre in centres) for row in rows]
        if not sum(weights):
            break
        running, chosen = 0, 0
        for index, weight in enumerate(weights):
            running += weight
            if running > draw * float(sum(weights)):
                chosen = index
                break
        centres.append([Fraction(bit) for bit in rows[chosen]])
    labels = None
    for _ in range(rounds):
        distances = [[apart(row, c) if c is not None else float("inf") for c in centres] for row in rows]
        before, labels = labels, [d.index(min(d)) for d in distances]
        if labels == before:
            break
        for k in range(len(centres)):
            members = [row for row, label in zip(rows, labels, strict=True) if label == k]
            columns = zip(*members, strict=True)
            centres[k] = [Fraction(sum(c), len(members)) for c in columns] if members else None
    return labels


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("clusters", [1, 2, 4])
def test_equals_brute_force(seed, clusters):
    rng = np.random.default_rng(seed)
    # Few bits and many rows: full of duplicates and of rows as near to one centre as to another.
    bits = random_bits(seed, int(rng.integers(1, 25)), int(rng.integers(1, 7)))
    assert k_means(torch.from_numpy(bits), clusters).tolist() == brute_force(bits, clusters)


@pytest.mark.parametrize("seed", range(5))
def test_ends_where_scikit_learn_does(seed):
    """From our centres after one round: before it, distances are whole numbers and ties, which it leaves open, many."""
    bits = random_bits(seed, 300, 60, groups=5, noise=0.3)
    first = k_means(torch.from_numpy(bits), 4, rounds=1).numpy()
    start = np.stack([bits[first == k].mean(0) for k in range(4)])
    theirs = KMeans(4, init=start, n_init=1, max_iter=99, tol=0, algorithm="lloyd").fit(bits.astype(float))
    ours = k_means(torch.from_numpy(bits), 4).numpy()
    assert inertia(bits.astype(float), ours) == pytest.approx(theirs.inertia_, rel=1e-12)
    np.testing.assert_array_equal(ours, theirs.labels_)


def test_is_as_good_as_scikit_learns_own_start():
    ours, theirs = [], []
    for seed in range(20):
        bits = random_bits(seed, 200, 40, groups=4, noise=0.2)
        ours.append(inertia(bits.astype(float), k_means(torch.from_numpy(bits), 4).numpy()))
        theirs.append(KMeans(4, n_init=1, random_state=0, init="k-means++").fit(bits.astype(float)).inertia_)
    assert np.mean(ours) < 1.1 * np.mean(theirs)


def test_the_start_is_drawn_by_squared_distance():
    # One row far off among many alike: unless it is the first, it must be the second.
    bits = torch.zeros(50, 10, dtype=torch.bool)
    bits[37] = True
    assert 37 in seeds(bits, 2).tolist()


def test_fewer_distinct_rows_than_clusters():
    bits = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]]).bool()
    labels = k_means(bits, 4)
    assert len(labels.unique()) == 2
    assert labels[0] == labels[2] == labels[4] != labels[1] == labels[3]
    assert k_means(bits[:1], 4).tolist() == [0]


def test_blocks_do_not_matter(monkeypatch):
    bits = torch.from_numpy(random_bits(1, 100, 30, noise=0.3))
    whole = k_means(bits, 4)
    monkeypatch.setattr(sizes, "BLOCK_ELEMENTS", {"cpu": 100})
    assert torch.equal(k_means(bits, 4), whole)


def test_rounds_are_limited():
    bits = torch.from_numpy(random_bits(3, 80, 20, noise=0.4))
    assert k_means(bits, 4, rounds=1).tolist() == brute_force(bits.numpy(), 4, rounds=1)
    assert not torch.equal(k_means(bits, 4, rounds=1), k_means(bits, 4))

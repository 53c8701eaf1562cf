"""Surprise of float64 outputs: traces stay float64 in memory, on disk and in files, and a trace's last digits count."""

import gc
import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

import neuralcov as nc
from neuralcov.core.activations import Activations
from neuralcov.criteria.surprise.class_traces import ClassTraces, TracesByClass
from neuralcov.criteria.surprise.nearest import NeighbourIndex, nearest
from neuralcov.statistics.traces import TraceStore, middle, trace_of
from tests.criteria.surprise.support import fitted, scores

WIDTH, CLASSES = 4, 3
STEP = 1e-9
CRITERIA = [
    nc.LSC(1, 20 * STEP, min_variance=0),
    nc.LSC(1, "scott", min_variance=0),
    nc.DSC(0.1, min_variance=0),
    nc.MDSC(1, min_variance=0),
    nc.MDSC(1, ridge=1e-3, min_variance=0, layers="a"),
]
NAMED = pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)


@pytest.fixture
def small_blocks(monkeypatch):
    """Traces of four neurons in float64 in blocks of 75 rows."""
    monkeypatch.setattr("neuralcov.statistics.row_blocks.BLOCK_BYTES", 8 * WIDTH * 75)


def small_steps(seed, size, width=WIDTH):
    """Traces 1 + 1e-9·k, all equal in float32, and their classes."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(size) % CLASSES)
    rows = 1 + STEP * (rng.integers(-40, 40, (size, width)) + 60 * labels[:, None])
    assert len(np.unique(rows.astype(np.float32))) < 4
    return rows, labels


def brute_force(criterion, tests, labels, training, classes):
    """All three by NumPy and SciPy, of what is left when 1 is taken away: no digit is lost by that."""
    tests, training = tests - 1, training - 1
    found = np.empty(len(tests))
    for index, (x, label) in enumerate(zip(tests, labels, strict=True)):
        own, others = training[classes == label], training[classes != label]
        count, width = own.shape
        if isinstance(criterion, nc.DSC):
            apart = np.sqrt(((own - x) ** 2).sum(1))
            nearest = own[apart.argmin()]
            found[index] = apart.min() / np.sqrt(((others - nearest) ** 2).sum(1)).min()
        elif isinstance(criterion, nc.MDSC):
            covariance = np.cov(own.T, bias=True)
            covariance += criterion.ridge * np.trace(covariance) / width * np.eye(width)
            found[index] = math.sqrt((x - own.mean(0)) @ np.linalg.solve(covariance, x - own.mean(0)))
        elif criterion.bandwidth == "scott":
            covariance = np.cov(own.T) * count ** (-2 / (width + 4))
            squares = cdist(x[None], own, "mahalanobis", VI=np.linalg.inv(covariance))[0] ** 2
            norm = (width * math.log(2 * math.pi) + np.linalg.slogdet(covariance)[1]) / 2
            found[index] = norm + math.log(count) - logsumexp(-squares / 2)
        else:
            squares = cdist(x[None], own, "sqeuclidean")[0]
            norm = width * math.log(math.sqrt(2 * math.pi) * criterion.bandwidth)
            found[index] = norm + math.log(count) - logsumexp(squares / (-2 * criterion.bandwidth**2))
    return found


@NAMED
@pytest.mark.parametrize("size", [9, 90, 600])
def test_differences_below_float32_count(criterion, size):
    if size == 9 and getattr(criterion, "bandwidth", None) == "scott":
        pytest.skip("Scott's rule needs more traces than neurons")
    (training, classes), (tests, labels) = small_steps(1, size), small_steps(2, 30)
    expected = brute_force(criterion, tests, labels, training, classes)
    np.testing.assert_allclose(scores(fitted(criterion, training, classes), tests, labels), expected, rtol=1e-9)


@NAMED
@pytest.mark.parametrize("training_type", [np.float32, np.float64])
@pytest.mark.parametrize("test_type", [np.float32, np.float64])
def test_mixed_precision_is_compared_in_float64(criterion, training_type, test_type):
    """What was rounded to float32 stays so; the other side is not."""
    rng = np.random.default_rng(5)
    training = (rng.standard_normal((90, WIDTH)) + 1).astype(training_type).astype(np.float64)
    tests = (rng.standard_normal((30, WIDTH)) + 1).astype(test_type).astype(np.float64)
    classes, labels = np.arange(90) % CLASSES, np.arange(30) % CLASSES
    expected = brute_force(criterion, tests, labels, training, classes)
    coverage = fitted(criterion, training.astype(training_type), classes)
    np.testing.assert_allclose(scores(coverage, tests.astype(test_type), labels), expected, rtol=1e-9)


def test_a_float32_input_beside_float64_traces_is_not_matched_in_float32():
    """Traces that are one in float32 are told apart, though the input itself is float32."""
    training = np.array([[1 + 3e-9], [1 + 1e-9], [1 + 9e-9], [5.0]])
    found = scores(fitted(nc.DSC(0.1), training, np.array([0, 0, 0, 1])), np.ones((1, 1), np.float32), np.array([0]))
    np.testing.assert_allclose(found, (training[1] - 1) / (5 - training[1]), rtol=1e-12)


@NAMED
@pytest.mark.parametrize("memory", ["1B", "100kB", "1GiB"])
def test_streamed_from_disk(small_blocks, criterion, memory):
    (training, classes), (tests, labels) = small_steps(1, 900), small_steps(2, 30)
    limited = type(criterion)(**{**criterion.parameters, "memory": memory})
    coverage = nc.Coverage.of_layers({"a": WIDTH}, [limited])
    parts = zip(np.array_split(training, 30), np.array_split(classes, 30), strict=True)
    coverage.calibrate(
        activations=[Activations({"a": torch.from_numpy(r)}, predictions=torch.from_numpy(c)) for r, c in parts]
    )
    expected = brute_force(criterion, tests, labels, training, classes)
    np.testing.assert_allclose(scores(coverage, tests, labels), expected, rtol=1e-9)
    del coverage
    gc.collect()


@NAMED
def test_saved_calibrations_hold_float64(tmp_path, criterion):
    (training, classes), (tests, labels) = small_steps(1, 90), small_steps(2, 30)
    fitted(criterion, training, classes).save_calibration(tmp_path / "a.ncal")
    loaded = nc.Coverage.of_layers({"a": WIDTH}, [criterion])
    loaded.calibrate(tmp_path / "a.ncal")
    expected = brute_force(criterion, tests, labels, training, classes)
    np.testing.assert_allclose(scores(loaded, tests, labels), expected, rtol=1e-9)


def test_layers_of_different_precision_are_promoted():
    batch = Activations({"a": torch.ones(2, 3), "b": torch.ones(2, 2, dtype=torch.float64)})
    assert trace_of(batch, ["a"]).dtype == torch.float32
    assert trace_of(batch, ["a", "b"]).dtype == torch.float64
    half = Activations({"a": torch.ones(2, 3, dtype=torch.bfloat16)})
    assert trace_of(half, ["a"]).dtype == torch.float32


def test_only_float64_takes_the_room_of_float64():
    for dtype, size in ((torch.float32, 4), (torch.float64, 8)):
        store = TraceStore.empty(["a"], 1 << 20, torch.device("cpu"))
        store = store.observe(Activations({"a": torch.ones(5, 3, dtype=dtype)})).finished()
        assert store.dtype == dtype
        assert sum(block.nbytes for block in store.blocks) == 5 * 3 * size


@pytest.mark.parametrize("budget", [1, 1 << 20])
def test_batches_of_different_precision(small_blocks, budget):
    """Blocks of either type, in memory and on disk: rows come back as float64."""
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((40, 6)).astype(kind) for kind in (np.float32, np.float64) * 5]
    labels = [np.arange(40) % 3 for _ in parts]
    store = TraceStore.empty(["a"], budget, torch.device("cpu"))
    for part, classes in zip(parts, labels, strict=True):
        predictions = torch.from_numpy(classes)
        store = store.observe(Activations({"a": torch.from_numpy(part)}, predictions=predictions))
    store = store.finished()
    rows, classes = np.concatenate(parts), np.concatenate(labels)
    wanted = torch.arange(0, 400, 7)
    found = store.rows(wanted)
    assert found.dtype == torch.float64
    np.testing.assert_array_equal(found, rows[wanted])
    view = ClassTraces(store, ["a"], [6], "predicted", 0.0)
    ordered = TracesByClass(store, view.members)
    for label in range(3):
        np.testing.assert_array_equal(ordered.of_class(label), rows[classes == label])
        np.testing.assert_array_equal(view.of_class(label), rows[classes == label])


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e60])
def test_neighbours_in_float64(scale):
    rng = np.random.default_rng(3)
    rows, queries = (torch.from_numpy(1 * (scale < 1) + scale * rng.integers(0, 50, (n, 3))) for n in (200, 40))
    numbers = torch.arange(200)
    corpus = NeighbourIndex(
        lambda: [(numbers[:90], rows[:90]), (numbers[90:], rows[90:])], lambda w: rows[w], middle(rows)
    )
    found = nearest(queries, corpus)
    apart = cdist(queries, rows)
    np.testing.assert_allclose(found.distances, apart.min(1), rtol=1e-12)
    exact = np.sqrt(((queries[:, None] - rows[None]) ** 2).sum(2).numpy())
    assert found.numbers.tolist() == exact.argmin(1).tolist()


@pytest.mark.parametrize("criterion", [nc.LSC(10), nc.DSC(0.1), nc.MDSC(1)], ids=lambda criterion: criterion.name)
def test_float64_beyond_the_range_of_float32_is_a_number_like_others(criterion):
    rng = np.random.default_rng(4)
    training, tests = 1e60 * rng.standard_normal((90, WIDTH)), 1e60 * rng.standard_normal((30, WIDTH))
    classes, labels = np.arange(90) % CLASSES, np.arange(30) % CLASSES
    found = scores(fitted(criterion, training, classes), tests, labels)
    expected = brute_force(criterion, tests + 1, labels, training + 1, classes)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("criterion", [nc.LSC(10), nc.DSC(0.1), nc.MDSC(1)], ids=lambda criterion: criterion.name)
def test_what_statistics_cannot_hold_is_left_out_and_counted(criterion):
    (training, classes), (tests, labels) = small_steps(1, 90), small_steps(2, 30)
    rng = np.random.default_rng(6)
    training, tests = training + rng.standard_normal(training.shape), tests + rng.standard_normal(tests.shape)
    expected = scores(fitted(criterion, training, classes), tests, labels)
    training[7], tests[3] = 1e200, 1e200
    coverage = nc.Coverage.of_layers({"a": WIDTH}, [criterion])
    with pytest.warns(nc.CoverageWarning, match="1 training input with NaN or infinite outputs"):
        coverage.calibrate(activations={"a": training}, predictions=classes)
    found = scores(coverage, tests, labels)
    assert np.isnan(found).nonzero()[0].tolist() == [3]
    assert np.isfinite(expected).all()
    coverage.update(activations={"a": tests}, predictions=labels)
    with pytest.warns(nc.CoverageWarning, match="1 input with NaN or infinite outputs was left out"):
        coverage.values()


def test_a_class_of_equal_float64_traces():
    """The mean of ten times 0.1 is not 0.1 in float64, and still no spread."""
    training = np.array([[0.1, 0.7]] * 10 + [[1.0, 2.0], [3.0, 4.0]])
    classes = np.array([0] * 10 + [1] * 2)
    tests = np.array([[0.1, 0.7], [0.1, 0.7 + 1e-15]])
    found = scores(fitted(nc.MDSC(1), training, classes), tests, np.zeros(2, int))
    np.testing.assert_array_equal(found, [0.0, np.nan])

import numpy as np
import pytest
import torch

import neuralcov as nc
from tests.support import FLAVOURS, classes, covered, layer_values, suite, value_of


def norm(rows):
    """‖Σ‖₁/m² of one layer, in float64, covariances divided by n."""
    rows = rows.astype(np.float64)
    centred = rows - rows.mean(0)
    return np.abs(centred.T @ centred / len(rows)).sum() / rows.shape[1] ** 2


def brute_force_growing(values, batch):
    """The growing rule on one layer: keep the rows of every batch that is taken."""
    taken, best = None, 0.0
    for start in range(0, len(values), batch):
        rows = values[start : start + batch]
        candidate = rows if taken is None else np.concatenate([taken, rows])
        if taken is None or norm(candidate) > best:
            taken, best = candidate, norm(candidate)
    return best


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (2, 1), (23, 5), (64, 8)])
def test_growing_rule_equals_brute_force(flavour, size, batch):
    tests = suite(7, size, flavour)
    expected = sum(brute_force_growing(values, batch) for values in tests.values())
    assert value_of(nc.NLC(), tests, batch=batch) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("batch", [1, 5, 23])
def test_all_rule_equals_the_covariance_of_everything(flavour, batch):
    tests = suite(8, 23, flavour)
    expected = {name: norm(values) for name, values in tests.items()}
    found = value_of(nc.NLC(rule="all"), tests, batch=batch)
    assert found == pytest.approx(sum(expected.values()), rel=1e-9)
    by_layer = layer_values(nc.NLC(rule="all"), tests)
    assert by_layer == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_batch_size_1_and_10000_agree():
    tests = {"a": (np.random.default_rng(0).standard_normal((10_000, 20)) * 3 + 100).astype(np.float32)}
    one_by_one = value_of(nc.NLC(rule="all"), tests, batch=1)
    assert one_by_one == pytest.approx(value_of(nc.NLC(rule="all"), tests), rel=1e-9)
    assert one_by_one == pytest.approx(norm(tests["a"]), rel=1e-9)


def test_the_growing_rule_depends_on_order_and_batch_size():
    tests = suite(9, 64)
    backwards = {name: values[::-1].copy() for name, values in tests.items()}
    assert value_of(nc.NLC(), tests, batch=8) != pytest.approx(value_of(nc.NLC(), backwards, batch=8), rel=1e-3)
    assert value_of(nc.NLC(), tests, batch=8) > value_of(nc.NLC(), tests)


@pytest.mark.parametrize("rule", ["growing", "all"])
def test_class_wise_equals_brute_force(rule):
    tests, labels = suite(10, 40), classes(11, 40, 3)
    expected = 0.0
    for values in tests.values():
        for label in range(4):
            rows = values[labels == label]
            if len(rows):
                # One batch per class and update, so that the growing rule meets the same batches.
                parts = [values[i : i + 10][labels[i : i + 10] == label] for i in range(0, 40, 10)]
                expected += (grow(parts) if rule == "growing" else norm(rows)) / 4
    found = value_of(nc.NLC(classes=4, rule=rule), tests, batch=10, labels=labels)
    assert found == pytest.approx(expected, rel=1e-9)


def grow(parts):
    taken, best = None, 0.0
    for rows in parts:
        if not len(rows):
            continue
        candidate = rows if taken is None else np.concatenate([taken, rows])
        if taken is None or norm(candidate) > best:
            taken, best = candidate, norm(candidate)
    return best


def test_labels_out_of_range_are_left_out_and_counted():
    tests = suite(12, 10)
    labels = np.array([0, 1] * 4 + [7, -1])
    coverage = covered(nc.NLC(classes=2), tests, labels=labels)
    with pytest.warns(nc.CoverageWarning, match="2 inputs were left out: their classes did not occur"):
        found = coverage.values()
    rest = {name: values[:8] for name, values in tests.items()}
    assert found["NLC(classes=2)"] == value_of(nc.NLC(classes=2), rest, labels=labels[:8])


def test_merging_into_a_layer_that_saw_nothing_takes_the_other():
    first, second = (nc.Coverage.of_layers({"a": 1}, [nc.NLC()]) for _ in range(2))
    first.update(activations={"a": np.array([[np.nan]], np.float32)})
    second.update(activations={"a": np.array([[0.0]], np.float32)})
    first.merge(second)
    assert first.gain(activations={"a": np.array([[3.0]], np.float32)})["NLC"].tolist() == [2.25]


def test_no_label_in_range_is_an_error():
    coverage = covered(nc.NLC(classes=2), suite(12, 4), labels=np.array([5, 6, 7, 8]))
    with pytest.raises(nc.NeuralcovError, match=r"NLC\(classes=2\) could place none of 4 inputs"):
        coverage.values()


def test_class_wise_needs_labels():
    with pytest.raises(nc.NeuralcovError, match=r"NLC\(classes=3\) needs labels"):
        covered(nc.NLC(classes=3), suite(1, 4))


def test_gain_of_wide_layers_in_tiles():
    """Layers wider than a tile, many inputs: against forming the whole matrix."""
    rng = np.random.default_rng(1)
    mixing = rng.standard_normal((700, 700))
    rows = (rng.standard_normal((30, 700)) @ mixing).astype(np.float32)
    candidates = (2 * rng.standard_normal((3, 700)) @ mixing).astype(np.float32)
    coverage = covered(nc.NLC(rule="all"), {"a": rows})
    gains = coverage.gain(activations={"a": candidates})["NLC(rule=all)"]
    for gain, candidate in zip(gains.tolist(), candidates, strict=True):
        assert gain == pytest.approx(norm(np.vstack([rows, candidate])) - norm(rows), rel=1e-8)


def test_merging_the_growing_rule_keeps_the_largest():
    a, b = suite(13, 10), suite(14, 10, spread=3.0)
    first, second = covered(nc.NLC(), a), covered(nc.NLC(), b)
    expected = sum(max(norm(a[n]), norm(b[n]), norm(np.concatenate([a[n], b[n]]))) for n in a)
    first.merge(second)
    with pytest.warns(nc.CoverageWarning, match="NLC: 2 parts measured apart were merged"):
        assert first.values()["NLC"] == pytest.approx(expected, rel=1e-9)


def test_repeating_the_whole_suite_changes_nothing_under_all():
    tests = suite(15, 20)
    twice = {name: np.concatenate([values, values]) for name, values in tests.items()}
    assert value_of(nc.NLC(rule="all"), twice) == pytest.approx(value_of(nc.NLC(rule="all"), tests), rel=1e-12)


def test_too_many_classes_for_the_memory():
    widths = {f"layer{i}": 2048 for i in range(6)} | {"rest": 1738}
    zeros = {name: torch.zeros(1, width) for name, width in widths.items()}
    coverage = nc.Coverage.of_layers(widths, [nc.NLC(classes=1000)])
    with pytest.raises(
        nc.NeuralcovError, match=r"would take 226 GB.* but memory='16GiB' allows 17\.2 GB.* leave classes= out"
    ):
        coverage.update(activations=zeros, labels=[0])


@pytest.mark.parametrize("arguments", [{"rule": "some"}, {"classes": 0}, {"memory": "lots"}, {"memory": 0}])
def test_arguments_out_of_range(arguments):
    with pytest.raises(nc.NeuralcovError, match=next(iter(arguments))):
        nc.NLC(**arguments)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nc.NLC(), nc.NLC(memory="32GiB")),
        (nc.NLC(rule="all", classes=2), nc.NLC(rule="all", classes=2, memory="1GiB")),
        (nc.LVC(), nc.LVC(refresh=64)),
    ],
    ids=lambda criterion: type(criterion).__name__,
)
@pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
def test_limits_on_resources_are_no_part_of_the_identity(one, other, tmp_path):
    assert one.name == other.name
    rows = np.random.default_rng(0).standard_normal((40, 3))
    classes = np.arange(40) % 2

    def measured(criterion, some):
        coverage = nc.Coverage.of_layers({"a": 3}, [criterion])
        if criterion.learns:
            coverage.calibrate(activations={"a": rows}, labels=classes, predictions=classes)
        coverage.update(activations={"a": rows[some]}, labels=classes[some], predictions=classes[some])
        return coverage

    def merged(first, second):
        coverage = measured(first, slice(0, 20))
        coverage.merge(measured(second, slice(20, 40)))
        return coverage.values()

    assert merged(one, other) == merged(one, one)
    left, right = measured(one, slice(0, 20)), measured(other, slice(20, 40))
    assert (left + right).values() == sum([left, right]).values() == merged(one, one)
    values = left.values()
    right.restore(left.snapshot())
    assert right.values() == values
    left.save(tmp_path / "suite.ncov")
    loaded = nc.Coverage.load(tmp_path / "suite.ncov", criteria=[other])
    assert loaded.values() == values
    apart = measured(one, slice(20, 40))
    loaded.merge(apart)
    left.merge(apart)
    assert loaded.values() == left.values()

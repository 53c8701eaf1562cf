"""LVC beside extreme inputs, against 60-digit arithmetic."""

import itertools

import mpmath
import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov import demo
from neuralcov.criteria.lvc.volume import orthonormal
from tests.support import covered, suite, value_of

RIDGE = 1e-4
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def exact_covariance(rows):
    """Σ to 60 digits, divided by n."""
    matrix = mpmath.matrix(rows.tolist())
    count = len(rows)
    means = [mpmath.fsum(matrix[:, j]) / count for j in range(matrix.cols)]
    centred = mpmath.matrix(count, matrix.cols)
    for i, j in itertools.product(range(count), range(matrix.cols)):
        centred[i, j] = matrix[i, j] - means[j]
    return centred.T * centred / count


def exact_bits(rows, training, ridge=RIDGE):
    """Bits per neuron of one layer, by determinants to 60 digits."""
    with mpmath.workdps(60):
        width = rows.shape[1]
        base = exact_covariance(training)
        share = mpmath.fsum(base[i, i] for i in range(width)) / width
        base += mpmath.mpf(ridge) * share * mpmath.eye(width)
        ratio = mpmath.det(base + exact_covariance(rows)) / mpmath.det(base)
        return float(mpmath.log(ratio, 2) / width)


def training_rows(rng, size, width):
    """Rows whose directions differ a hundredfold in spread, about a mean that is not 0."""
    mixing = rng.standard_normal((width, width)) @ np.diag(np.geomspace(1, 0.01, width))
    return rng.standard_normal((size, width)) @ mixing + 3 * rng.standard_normal(width)


def lengthened(rows, training, length):
    """The rows moved away from the training mean until their whitened length is ``length``·√m."""
    width = rows.shape[1]
    base = np.cov(training.T, bias=True).reshape(width, width)
    base = base + RIDGE * np.trace(base) / width * np.eye(width)
    apart = rows - training.mean(0)
    now = np.sqrt(np.einsum("ij,ij->i", apart, np.linalg.solve(base, apart.T).T) / width)
    return training.mean(0) + apart * (length / now)[:, None]


def extreme_suite(rng, training, kind, size, long, length):
    """A suite like the training data, of whose inputs some are long in one of several ways."""
    rows = training[rng.integers(0, len(training), size)] + 0.3 * rng.standard_normal((size, training.shape[1]))
    share = np.full(long, 0.99) if kind == "one length" else rng.uniform(0.05, 0.99, long)
    if kind in ("one length", "every length"):
        rows[:long] = lengthened(rows[:long], training, share * length)
    else:
        # The same input scaled again and again, or mixtures of two: what they span beside each other is of size 1.
        ways = rows[:1] if kind == "scaled copies" else rows[:2]
        mixed = rng.uniform(0.2, 1, (long, len(ways))) @ (ways - training.mean(0)) + training.mean(0)
        rows[:long] += lengthened(mixed, training, share * length) - training.mean(0)
    return rows


CASES = list(
    itertools.product(
        ["one length", "every length", "scaled copies", "two ways"],
        [(1, 12, 1), (2, 2, 1), (2, 30, 3), (3, 3, 3), (5, 40, 20), (8, 60, 50)],
        [(1e3, 1e-7), (1e5, 1e-7), (1e6, 1e-6), (1e8, 1e-6)],
    )
)


@pytest.mark.parametrize(("kind", "shape", "reach"), CASES, ids=str)
def test_right_beside_extreme_inputs(kind, shape, reach):
    (width, size, long), (length, tolerance) = shape, reach
    rng = np.random.default_rng([width, size, long, int(length)])
    training = training_rows(rng, 80, width)
    rows = extreme_suite(rng, training, kind, size, long, length)
    expected = exact_bits(rows, training)
    assert expected > 1 or length < 1e5, "the extreme inputs weigh"
    # A second layer, constant in training, takes part in nothing.
    tests, taught = ({"a": some, "b": np.full((len(some), 2), 0.5)} for some in (rows, training))
    tests["b"][0] = 7
    for batch in (None, 1, 7):
        assert value_of(nc.LVC(), tests, taught, batch) == pytest.approx(expected, abs=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_right_beside_extreme_inputs_at_random(seed):
    rng = np.random.default_rng(seed)
    width, size = int(rng.integers(1, 10)), int(rng.integers(2, 90))
    long = int(rng.integers(1, min(size, 64) + 1))
    length = float(10 ** rng.uniform(3, 8))
    kind = str(rng.choice(["one length", "every length", "scaled copies", "two ways"]))
    training = training_rows(rng, 100, width)
    rows = extreme_suite(rng, training, kind, size, long, length)
    found = value_of(nc.LVC(), {"a": rows}, {"a": training}, int(rng.integers(1, 30)))
    assert found == pytest.approx(exact_bits(rows, training), abs=1e-7 if length <= 1e5 else 1e-6)


def test_more_than_64_stretched_inputs_all_count():
    """Between 1e4 and 1e5 lengths of training inputs there is room for 64; the others go into the covariance."""
    rng = np.random.default_rng(3)
    training = training_rows(rng, 80, 3)
    rows = extreme_suite(rng, training, "scaled copies", 150, 140, 1e5)
    for batch in (None, 9):
        found = value_of(nc.LVC(), {"a": rows}, {"a": training}, batch)
        assert found == pytest.approx(exact_bits(rows, training), abs=1e-6)


def halves(rows, training, criterion=None, at=None):
    parts = [rows[:at], rows[at:]]
    merged = [covered(criterion or nc.LVC(), {"a": part}, {"a": training}) for part in parts]
    merged[0].merge(merged[1])
    return merged[0]


@pytest.mark.parametrize("groups", [1, 3])
def test_of_65_far_inputs_none_counts_however_they_come(groups):
    rng = np.random.default_rng(4)
    training = training_rows(rng, 80, 3)
    ordinary = training[:30] + 0.2
    far = extreme_suite(rng, training, "every length", 80, 80, 1e8)
    far = lengthened(far, training, np.geomspace(1.1e5, 9e7, 80))
    criterion = nc.LVC(groups=groups)
    plain = value_of(criterion, {"a": ordinary}, {"a": training})

    def values(count):
        rows = np.concatenate([far[: count // 2], ordinary, far[count // 2 : count]])
        turned = rows[::-1].copy()
        whole = covered(criterion, {"a": rows}, {"a": training})
        found = [whole, halves(rows, training, criterion, 50)]
        found += [
            covered(criterion, {"a": some}, {"a": training}, batch) for some in (rows, turned) for batch in (1, 7)
        ]
        assert all(coverage.inputs == len(rows) for coverage in found)
        return [coverage.values()[criterion.name] for coverage in found], whole.findings()

    with_64, _ = values(64)
    assert with_64 == pytest.approx([with_64[0]] * 6, abs=1e-7)
    if groups == 1:
        rows = np.concatenate([far[:64], ordinary])
        assert with_64[0] == pytest.approx(exact_bits(rows, training), abs=1e-6)
    for count in (65, 80):
        found, findings = values(count)
        assert found == pytest.approx([plain] * 6, rel=1e-12)
        said = [finding.sentence for finding in findings]
        assert any(s.startswith(f"{count} inputs lie over 100000 times as far out") and " a: " in s for s in said)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("far", [0, 1, 63, 64, 65])
def test_gain_is_the_change_of_value_beside_extreme_inputs(groups, far):
    rng = np.random.default_rng(far)
    training = training_rows(rng, 80, 3)
    rows = np.concatenate([training[:20] + 0.2, extreme_suite(rng, training, "scaled copies", 5, 5, 9e4)])
    if far:
        rows = np.concatenate(
            [rows, lengthened(training[rng.integers(0, 80, far)] + 0.1, training, np.geomspace(2e5, 9e7, far))]
        )
    candidates = np.concatenate(
        [
            training[:3],
            extreme_suite(rng, training, "every length", 3, 3, 1e5),
            lengthened(training[5:9] + 0.1, training, np.array([2e5, 1e6, 1e7, 9e7])),
            rows[-2:],
            lengthened(training[9:11], training, np.array([1.1e8, 1e12])),
        ]
    )
    criterion = nc.LVC(groups=groups)
    coverage = covered(criterion, {"a": rows}, {"a": training})
    gains = coverage.gain(activations={"a": candidates})[criterion.name].tolist()
    before = coverage.values()[criterion.name]
    for index, gain in enumerate(gains):
        after = covered(criterion, {"a": np.concatenate([rows, candidates[index : index + 1]])}, {"a": training})
        assert gain == pytest.approx(after.values()[criterion.name] - before, abs=2e-8), index
    assert gains[-2:] == [0, 0]
    if far == 64:
        assert gains[7] < -1, "the sixty-fifth makes all far inputs drop out"


def test_admitting_beside_extreme_inputs_is_judging_and_observing():
    rng = np.random.default_rng(8)
    training = training_rows(rng, 80, 3)
    coverage = covered(nc.LVC(), {"a": training[:10]}, {"a": training})
    batch = np.concatenate([extreme_suite(rng, training, "every length", 6, 6, 1e8), training[:6] * 1.1])
    batch = np.concatenate(
        [batch, lengthened(training[9:10], training, np.array([1e9])), batch[:1], 2 * training[30:33]]
    )
    admitted = coverage.snapshot()
    taken = coverage.admit(activations={"a": batch}).tolist()
    value = coverage.values()["LVC"]
    coverage.restore(admitted)
    expected = []
    for row in batch:
        gains = coverage.gain(activations={"a": row[None]})["LVC"] > 0
        expected.append(bool(gains))
        if gains:
            coverage.update(activations={"a": row[None]})
    assert taken == expected
    assert value == pytest.approx(coverage.values()["LVC"], abs=1e-7)
    coverage.restore(admitted)
    refused = coverage.admit(activations={"a": batch}, min_gain=-100).tolist()
    assert refused == [index != 12 for index in range(len(batch))], "an excluded input is never admitted"


def test_one_digit_a_million_times_brighter():
    """The figure of the network of digits; NaN when covariances were kept of outputs as they are."""
    net, images = demo.train_digits(progress=False), demo.digits("test").pixels()
    coverage = nc.Coverage(net, [nc.LVC()])
    coverage.calibrate([demo.digits("train").pixels()])
    coverage.update(images[:200])
    coverage.update(images[:1] * 1e6)
    outputs = {
        name: values.numpy()
        for name, values in coverage.run(torch.cat([images[:200], images[:1] * 1e6]))[0].layers.items()
    }
    training = coverage.run(demo.digits("train").pixels())[0].layers
    # Of the narrow layers, to spare the time that 60 digits take.
    rows = {row.layer: row.values["LVC"] for row in coverage.by_layer()}
    for name in ("conv1", "fc2"):
        taught = training[name].numpy().astype(np.float64)
        assert rows[name] == pytest.approx(exact_bits(outputs[name].astype(np.float64), taught), abs=1e-5)
    assert coverage.values()["LVC"] == pytest.approx(2.7796, abs=2e-3)


def test_inputs_too_far_out_are_excluded_by_any_layer():
    training, tests = suite(1, 500, widths={"a": 5, "b": 4}), suite(2, 30, widths={"a": 5, "b": 4})
    plain = value_of(nc.LVC(), tests, training)
    for scale, excluded in ((1e7, 0), (1e12, 1), (1e30, 1)):
        far = {name: np.concatenate([tests[name], training[name][:1]]) for name in tests}
        far["b"][-1] *= scale
        coverage = covered(nc.LVC(), far, training)
        found = [finding for finding in coverage.findings() if finding.inputs]
        assert [finding.inputs for finding in found] == [1] * excluded
        value = coverage.values()["LVC"]
        if excluded:
            assert "so that float64 would lose the rest" in found[0].sentence
            assert value == pytest.approx(plain, rel=1e-12)
            assert coverage.gain(activations={name: rows[-1:] for name, rows in far.items()})["LVC"].tolist() == [0]
        else:
            expected = [exact_bits(far[n].astype(np.float64), training[n].astype(np.float64)) for n in far]
            assert value == pytest.approx(np.mean(expected), abs=1e-6)


def test_a_covariance_that_cannot_be_factorised_is_an_error():
    rows = np.random.default_rng(0).standard_normal((200, 2))
    # Two neurons that are one, of outputs so small that the ridge vanishes.
    flat = {"ok": rows, "flat": 1e-160 * rows[:, :1].repeat(2, axis=1)}
    coverage = nc.Coverage.of_layers({"ok": 2, "flat": 2}, [nc.LVC(ridge=1e-12)])
    with pytest.raises(
        nc.NeuralcovError, match=r"LVC\(ridge=1e-12\): .* cannot be factorised in flat: choose a larger"
    ):
        coverage.calibrate(activations=flat)


def test_a_state_that_cannot_be_factorised_is_an_error():
    training = suite(1, 50)
    coverage = covered(nc.LVC(), suite(2, 20), training)
    coverage.states[0].folds[0][1].scatter[0, 0, 0] = torch.nan
    with pytest.raises(
        nc.NeuralcovError, match="LVC has no value: the covariance of the inputs cannot be factorised in b"
    ):
        coverage.values()


@pytest.mark.parametrize(("rows", "columns", "grade"), [(6, 4, 1e8), (200, 128, 1e8), (130, 128, 1e3), (5, 5, 1.0)])
def test_an_orthonormal_basis_of_columns_of_all_lengths(rows, columns, grade):
    rng = np.random.default_rng(rows)
    common = rng.standard_normal((rows, 1))
    matrix = grade * common * rng.uniform(0.1, 1, columns) + rng.standard_normal((rows, columns))
    basis, log_det = orthonormal(torch.from_numpy(matrix)[None])
    assert (basis[0].T @ basis[0] - torch.eye(columns)).abs().max() < 1e-13
    _, triangle = np.linalg.qr(matrix)
    assert float(log_det) == pytest.approx(2 * np.log(np.abs(np.diag(triangle))).sum(), abs=1e-5)

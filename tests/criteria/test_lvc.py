import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal

import neuralcov as nc
from tests.support import covered, layer_values, suite, value_of

RIDGE = 1e-4


def covariance(rows):
    return np.cov(rows.astype(np.float64).T, bias=True).reshape(rows.shape[1], rows.shape[1])


def bits(rows, training, ridge=RIDGE):
    """Bits per neuron of one layer, by eigenvalues of T⁻¹Σ instead of determinants."""
    width = rows.shape[1]
    if len(rows) < 2:
        return 0.0
    base = covariance(training)
    base = base + ridge * np.trace(base) / width * np.eye(width)
    eigenvalues = np.linalg.eigvals(np.linalg.solve(base, covariance(rows))).real
    return np.log2(1 + np.clip(eigenvalues, 0, None)).sum() / width


@pytest.mark.parametrize("flavour", ["smooth", "ties", "rectified", "scaled"])
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (2, 1), (23, 5), (200, 64)])
def test_equals_brute_force(flavour, size, batch):
    training, tests = suite(1, 60, flavour), suite(2, size, flavour, spread=1.2)
    expected = {name: bits(tests[name], training[name]) for name in tests}
    found = value_of(nc.LVC(), tests, training, batch)
    assert found == pytest.approx(np.mean(list(expected.values())), rel=1e-7, abs=1e-12)
    by_layer = layer_values(nc.LVC(), tests, training)
    assert by_layer == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_a_layer_constant_in_training_is_left_out_and_named_once():
    training, tests = suite(1, 100, "constant"), suite(2, 80, "constant")
    expected = np.mean([bits(tests[name], training[name]) for name in tests if name != "c"])
    coverage = covered(nc.LVC(), tests, training)
    with pytest.warns(nc.CoverageWarning, match="constant in training and left out: c"):
        assert coverage.values()["LVC"] == pytest.approx(expected, rel=1e-9)
    assert [row.values["LVC"] for row in coverage.by_layer() if row.layer == "c"] == [None]
    coverage.values()  # says nothing a second time: warnings are errors in these tests


def test_relative_to_held_out_inputs_and_to_training():
    training, held, tests = suite(1, 300), suite(3, 150), suite(2, 150, spread=1.5)
    raw = value_of(nc.LVC(), tests, training)
    against_training = np.mean([bits(training[name], training[name]) for name in training])
    assert value_of(nc.LVC(relative=True), tests, training) == pytest.approx(raw / against_training, rel=1e-7)
    against_held = np.mean([bits(held[name], training[name]) for name in training])
    found = value_of(nc.LVC(relative=True), tests, training, calibrate={"held_out": held})
    assert found == pytest.approx(raw / against_held, rel=1e-7)


def test_small_directions_are_not_lost():
    """Two neurons equal but for one part in 10⁴: in float32 products the difference would vanish."""
    rng = np.random.default_rng(0)
    common = rng.standard_normal((4000, 1))

    def rows(share):
        return np.concatenate([common, common + share * rng.standard_normal((4000, 1))], axis=1).astype(np.float32)

    training, tests = {"a": rows(1e-2)}, {"a": rows(3e-2)}
    assert value_of(nc.LVC(ridge=1e-9), tests, training) == pytest.approx(
        bits(tests["a"], training["a"], 1e-9), rel=1e-5
    )


def test_share_of_extreme_inputs():
    training = suite(1, 3000, widths={"a": 3})
    tests = suite(2, 1000, widths={"a": 3})
    tests["a"][:20] *= 50
    coverage = covered(nc.LVC(), tests, training)
    beyond = coverage.beside()["LVC"]["beyond"]
    mean, cov = training["a"].mean(0), covariance(training["a"])
    lengths = [np.sqrt(np.dot(d, np.linalg.solve(cov, d))) for d in training["a"] - mean]
    limit = np.quantile(lengths, 0.999)
    far = np.mean([np.sqrt(np.dot(d, np.linalg.solve(cov, d))) > limit for d in tests["a"] - mean])
    assert beyond == pytest.approx(far, abs=0.002)
    assert 0.02 <= beyond < 0.03


def test_jackknife_corrects_small_suites_and_gives_a_standard_error():
    """Against the entropy of Gaussians with known covariances, which SciPy computes."""
    width, size = 30, 300
    rng = np.random.default_rng(4)
    training = {"a": rng.standard_normal((20_000, width)).astype(np.float32)}
    suite_entropy, training_entropy = (multivariate_normal(cov=scale * np.eye(width)).entropy() for scale in (2, 1))
    truth = 2 * (suite_entropy - training_entropy) / (width * np.log(2))
    plain, corrected, errors = [], [], []
    for seed in range(8):
        tests = {"a": np.random.default_rng(seed).standard_normal((size, width)).astype(np.float32)}
        coverage = covered(nc.LVC(groups=10), tests, training)
        plain.append(value_of(nc.LVC(), tests, training))
        corrected.append(coverage._ledger.values()["LVC(groups=10)"])
        errors.append(coverage.beside()["LVC(groups=10)"]["standard error"])
    assert abs(np.mean(corrected) - truth) < 0.25 * abs(np.mean(plain) - truth)
    assert np.mean(errors) == pytest.approx(np.std(corrected, ddof=1), rel=0.6)


@pytest.mark.parametrize(("times", "short"), [(1, 0.16), (2, 0.09), (5, 0.04), (10, 0.02)])
def test_small_suites_fall_short_as_random_matrices_do(times, short):
    """Against the Marchenko-Pastur law, and the figures of the documentation."""
    width, ratio = 128, 1 / times
    rng = np.random.default_rng(0)
    training = {"a": rng.standard_normal((100_000, width)).astype(np.float32)}
    tests = {"a": rng.standard_normal((times * width, width)).astype(np.float32)}
    low, high = (1 - np.sqrt(ratio)) ** 2, (1 + np.sqrt(ratio)) ** 2

    def integrand(x):
        return np.log2(1 + x) * np.sqrt((high - x) * (x - low)) / (2 * np.pi * ratio * x)

    expected = quad(integrand, low, high)[0]
    assert value_of(nc.LVC(), tests, training) == pytest.approx(expected, rel=0.02)
    assert 1 - expected == pytest.approx(short, abs=0.005)


def test_inputs_beyond_what_float64_resolves_are_left_out_and_counted():
    training, tests = suite(1, 500, widths={"a": 5}), suite(2, 30, widths={"a": 5})
    plain = value_of(nc.LVC(), tests, training)
    for scale, left_out in ((1e7, 0), (1e12, 1), (1e30, 1)):
        far = {"a": np.concatenate([tests["a"], scale * training["a"][:1]])}
        coverage = covered(nc.LVC(), far, training)
        found = [finding for finding in coverage.findings() if finding.inputs]
        assert [finding.inputs for finding in found] == [1] * left_out
        if left_out:
            assert "so that float64 would lose the rest" in found[0].sentence
            assert coverage._ledger.values()["LVC"] == plain
            assert coverage.gain(activations={"a": far["a"][-1:]})["LVC"].tolist() == [0]
        else:
            rows = far["a"].astype(np.float64)
            assert coverage._ledger.values()["LVC"] == pytest.approx(bits(rows, training["a"]), rel=1e-4)


def test_a_constant_layer_of_float64_is_constant():
    training = {"a": np.full((35, 2), 0.1), "b": np.random.default_rng(0).standard_normal((35, 3))}
    coverage = nc.Coverage.of_layers({"a": 2, "b": 3}, [nc.LVC()])
    coverage.calibrate(activations=training)
    coverage.update(activations={"a": np.zeros((9, 2)), "b": training["b"][:9]})
    assert [row.values["LVC"] is None for row in coverage.by_layer()] == [True, False]


@pytest.mark.parametrize("held_out", [np.ones((1, 3)), np.ones((4, 3)), np.full((4, 3), np.nan)])
def test_held_out_inputs_without_spread_are_refused(held_out):
    training = {"a": np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)}
    coverage = nc.Coverage.of_layers({"a": 3}, [nc.LVC(relative=True)])
    with pytest.raises(nc.NeuralcovError, match="the held-out inputs span no volume"):
        coverage.calibrate(activations=training, held_out={"a": held_out.astype(np.float32)})


def test_groups_do_not_depend_on_order_or_split():
    training, tests = suite(1, 400), suite(2, 100)
    backwards = {name: values[::-1].copy() for name, values in tests.items()}
    found = value_of(nc.LVC(groups=5), tests, training, batch=7)
    assert value_of(nc.LVC(groups=5), backwards, training) == pytest.approx(found, rel=1e-9)


def test_warns_of_small_suites():
    coverage = covered(nc.LVC(), suite(2, 12), suite(1, 500))
    with pytest.warns(nc.CoverageWarning, match="12 inputs are fewer than twice the widest layer"):
        coverage.values()


def test_before_calibration():
    with pytest.raises(nc.NeuralcovError, match="LVC needs calibration"):
        covered(nc.LVC(), suite(1, 3))


@pytest.mark.parametrize("arguments", [{"ridge": 0}, {"groups": 0}, {"relative": "yes"}])
def test_arguments_out_of_range(arguments):
    with pytest.raises(nc.NeuralcovError, match=next(iter(arguments))):
        nc.LVC(**arguments)


def test_the_sign_of_zero_moves_no_input_to_another_group():
    rows = (3 * np.random.default_rng(0).normal(size=(50, 3))).round()
    assert np.signbit(rows[rows == 0]).any(), "there are negative zeros"
    found = [value_of(nc.LVC(groups=3), {"a": some}, {"a": some}) for some in (rows, rows + 0.0)]
    assert found[0] == found[1]

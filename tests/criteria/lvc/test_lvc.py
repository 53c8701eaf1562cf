import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import multivariate_normal

import neuralcov as nc
from neuralcov.core.digests import content_keys
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


def squared_lengths(rows, training):
    """Squared Mahalanobis distances by NumPy, with T in place of the covariance."""
    width = training.shape[1]
    base = covariance(training)
    base = base + RIDGE * np.trace(base) / width * np.eye(width)
    apart = rows.astype(np.float64) - training.astype(np.float64).mean(0)
    return np.einsum("ij,ij->i", apart, np.linalg.solve(base, apart.T).T)


def lengths(rows, training):
    return np.sqrt(np.mean([squared_lengths(rows[n], training[n]) / rows[n].shape[1] for n in rows], axis=0))


def test_beyond_counts_lengths_over_the_limit_of_held_out_inputs():
    widths = {"a": 3, "b": 6}
    training, held = suite(1, 400, widths=widths), suite(5, 1500, widths=widths)
    tests = suite(2, 1000, widths=widths)
    tests["a"][:20] *= 50
    limit = np.sort(lengths(held, training))[1499 - 1]  # the 1499th of 1500: the ceiling of 0.999·1500
    figures = covered(nc.LVC(), tests, training, calibrate={"held_out": held}).details()["LVC"]
    assert figures["beyond"] == np.mean(lengths(tests, training) > limit)
    assert figures["expected beyond"] == 0.001


@pytest.mark.parametrize("size", [40, 300, 1400])
def test_beyond_counts_lengths_over_what_training_inputs_show_left_out_one_by_one(size):
    """Each training input is measured by NumPy against all the others, as if it were fresh."""
    widths = {"a": 12, "b": 3}
    training, tests, few = suite(1, size, widths=widths), suite(2, 1000, widths=widths), suite(5, 10, widths=widths)
    tests["a"][:20] *= 1.5
    count = size

    def left_out(name):
        squares = squared_lengths(training[name], training[name])
        return (count / (count - 1)) * squares / (1 - squares / (count - 1)) / widths[name]

    own = np.sort(np.sqrt(np.mean([left_out(name) for name in widths], axis=0)))
    limit = own[-1] if size < 1000 else own[int(np.ceil(0.999 * size)) - 1]
    figures = covered(nc.LVC(), tests, training, calibrate={"held_out": few}).details()["LVC"]
    assert figures["beyond"] == np.mean(lengths(tests, training) > limit)
    assert figures["expected beyond"] == (1 / (size + 1) if size < 1000 else 0.001)
    # The formula is that of refitting without the input, but for the ridge.
    rest = np.delete(training["a"], 7, axis=0)
    fresh = squared_lengths(training["a"][7:8], rest)[0] / 12
    assert left_out("a")[7] == pytest.approx(fresh, rel=1e-2)


@pytest.mark.parametrize("ratio", [1.2, 2, 10])
def test_few_fresh_training_inputs_lie_beyond(ratio):
    """Nearly all did where training inputs were not many more than neurons: their own lengths are far too short."""
    width = 100
    mixing = np.random.default_rng(9).standard_normal((width, width)) * np.geomspace(1, 0.03, width)
    shares, expected = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)

        def rows(count, rng=rng):
            return {"a": (rng.standard_normal((count, width)) @ mixing).astype(np.float32)}

        figures = covered(nc.LVC(), rows(4000), rows(int(ratio * width))).details()["LVC"]
        shares.append(figures["beyond"])
        expected.append(figures["expected beyond"])
    assert np.mean(shares) <= 3 * np.mean(expected)


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
        corrected.append(coverage.values(warn=False)["LVC(groups=10)"])
        errors.append(coverage.details()["LVC(groups=10)"]["standard error"])
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
    with pytest.raises(nc.NeuralcovError, match=r"the held-out inputs span no volume|held out none of 50"):
        coverage.calibrate(activations=training, held_out={"a": held_out.astype(np.float32)})


def jackknifed(tests, training, count):
    """Corrected bits per layer and mean values without each fold, by NumPy; folds from the keys of the activations."""
    keys = content_keys([torch.from_numpy(values) + 0.0 for values in tests.values()])[:, 0].numpy()
    fold_of = keys.view(np.uint64) % np.uint64(count)
    left_out = {
        name: np.array([bits(tests[name][fold_of != fold], training[name]) for fold in range(count)]) for name in tests
    }
    corrected = {n: count * bits(tests[n], training[n]) - (count - 1) * left_out[n].mean() for n in tests}
    return corrected, np.mean(list(left_out.values()), axis=0)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_folds_are_dealt_by_content_key(count):
    training, tests = suite(1, 400), suite(2, 100)
    corrected, left_out = jackknifed(tests, training, count)
    criterion = nc.LVC(groups=count)
    coverage = covered(criterion, tests, training, 7)
    rows = {row.layer: row.values[criterion.name] for row in coverage.by_layer()}
    assert rows == pytest.approx(corrected, rel=1e-7)
    spread = np.sqrt((count - 1) / count * np.sum((left_out - left_out.mean()) ** 2))
    assert coverage.details()[criterion.name]["standard error"] == pytest.approx(spread, rel=1e-6)
    backwards = {name: values[::-1].copy() for name, values in tests.items()}
    assert value_of(criterion, backwards, training) == pytest.approx(np.mean(list(corrected.values())), rel=1e-7)


def test_folds_follow_the_inputs_not_the_first_layer():
    """Texts whose first layer gives nearly the same for all: dealt by it, the corrected value nearly doubled."""
    rng = np.random.default_rng(6)

    def texts(size):
        first = np.full((size, 4), 0.25) + 1e-6 * rng.standard_normal((size, 4))
        return {"embedding": first.astype(np.float32), "fc": rng.standard_normal((size, 20)).astype(np.float32)}

    training, tests = texts(2000), texts(1500)
    plain = value_of(nc.LVC(), tests, training)
    assert value_of(nc.LVC(groups=10), tests, training) == pytest.approx(plain, rel=0.02)
    # Of inputs that are known their bytes count, whatever the layers make of them.
    keys = content_keys([torch.arange(1500)])
    coverage = nc.Coverage.of_layers({"embedding": 4, "fc": 20}, [nc.LVC(groups=10)])
    coverage.calibrate(activations=training)
    coverage.update(activations=nc.Activations({n: torch.from_numpy(rows) for n, rows in tests.items()}, keys=keys))
    counts = [int(fold[0].count[0]) for fold in coverage.states[0].folds]
    expected = keys[:, 0].numpy().view(np.uint64) % np.uint64(10)
    assert counts == np.bincount(expected.astype(int), minlength=10).tolist()


@pytest.mark.parametrize("groups", [1, 4])
def test_training_data_are_as_spread_as_themselves_in_every_layer(groups):
    training = suite(1, 600, "scaled")
    training["b"] = np.where(training["b"] > 0, training["b"], 1e-3 * training["b"]).astype(np.float32)
    criterion = nc.LVC(relative=True, groups=groups)
    coverage = covered(criterion, training, training, 100)
    assert [row.values[criterion.name] for row in coverage.by_layer()] == pytest.approx([1] * 4, rel=1e-9)
    assert value_of(criterion, training, training) == pytest.approx(1, rel=1e-9)


def test_relative_rows_divide_by_their_own_reference():
    training, held, tests = suite(1, 300), suite(3, 150), suite(2, 120, spread=1.5)
    training["a"] *= np.float32(0.3)
    own = {n: bits(tests[n], training[n]) / bits(held[n], training[n]) for n in tests}
    found = layer_values(nc.LVC(relative=True), tests, training, calibrate={"held_out": held})
    assert found == pytest.approx(own, rel=1e-6)


@pytest.mark.parametrize("held", [True, False])
def test_the_reference_is_corrected_as_the_value_is(held):
    training, tests = suite(1, 300), suite(2, 120, spread=1.5)
    reference = suite(3, 90) if held else training
    above, below = (jackknifed(rows, training, 4)[0] for rows in (tests, reference))
    extra = {"calibrate": {"held_out": reference}} if held else {}
    criterion = nc.LVC(relative=True, groups=4)
    found = value_of(criterion, tests, training, **extra)
    assert found == pytest.approx(np.mean(list(above.values())) / np.mean(list(below.values())), rel=1e-6)
    rows = layer_values(criterion, tests, training, **extra)
    assert rows == pytest.approx({name: above[name] / below[name] for name in above}, rel=1e-6)


def test_held_out_inputs_far_out_are_no_reference():
    training, held = suite(1, 300, widths={"a": 3}), suite(3, 100, widths={"a": 3})
    held["a"][0] *= 1e7
    with pytest.raises(nc.NeuralcovError, match="some held-out inputs lie over 100000 times as far out"):
        covered(nc.LVC(relative=True), held, training, calibrate={"held_out": held})


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


def test_the_sign_of_zero_moves_no_input_to_another_fold():
    rows = (3 * np.random.default_rng(0).normal(size=(50, 3))).round()
    assert np.signbit(rows[rows == 0]).any(), "there are negative zeros"
    found = [value_of(nc.LVC(groups=3), {"a": some}, {"a": some}) for some in (rows, rows + 0.0)]
    assert found[0] == found[1]

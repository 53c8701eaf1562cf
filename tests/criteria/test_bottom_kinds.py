"""Sketches of kinds: exact below their size, right within their error above it, the same in any order and split."""

import math

import pytest
import torch

import neuralcov as nc
from neuralcov.core.records import fingerprint
from neuralcov.criteria.bottom_kinds import bottom, sample
from neuralcov.criteria.kind_set import KindSet
from neuralcov.testing import check_criterion

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


@pytest.mark.parametrize(
    "criterion", [nc.TKNP(1, sketch=16), nc.LCC(sketch=16), nc.LCC(sketch=20, over="mean")], ids=lambda c: c.name
)
def test_laws(criterion):
    check_criterion(criterion)


def test_names_and_arguments():
    assert nc.TKNP(3, sketch=64).name == "TKNP(3, sketch=64)"
    assert nc.LCC(sketch=4096).name == "LCC(sketch=4096)"
    for build in (nc.TKNP, nc.LCC):
        with pytest.raises(nc.NeuralcovError, match=r"sketch=3.*at least 16"):
            build(sketch=3)


def test_the_smallest_keys_of_every_column_are_kept():
    generator = torch.Generator().manual_seed(0)
    keys = torch.randint(-(2**63), 2**63 - 1, (500, 2), generator=generator)
    columns = torch.randint(3, (500,), generator=generator, dtype=torch.int32)
    seen = KindSet.empty(3, torch.device("cpu")).add(KindSet.of(keys, columns))
    found = bottom(seen, 20, 3)
    for column in range(3):
        words = sorted(keys[columns == column][:, 0].tolist())[:20]
        assert sorted(found.keys[found.columns == column][:, 0].tolist()) == words
    inside, share = sample(found, 20, 3)
    for column in range(3):
        largest = max(found.keys[found.columns == column][:, 0].tolist())
        assert float(share[column]) == pytest.approx((largest + 2**63) / 2**64)
        assert int((inside & (found.columns == column)).sum()) == 19
    few, all_of_them = sample(seen, 1000, 3)
    assert bool(few.all())
    assert all_of_them.tolist() == [1.0, 1.0, 1.0]


def patterns(inputs, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {"a": torch.randn(inputs, 12, generator=generator), "b": torch.randn(inputs, 9, generator=generator)}


def test_patterns_within_the_error_of_the_sketch():
    """Against the exact count, over many independent suites: no bias, and the spread that 1/√k says."""
    k, ratios = 256, []
    for seed in range(60):
        exact, sketched = (nc.Coverage.of_layers({"a": 12, "b": 9}, [c]) for c in (nc.TKNP(4), nc.TKNP(4, sketch=k)))
        for cov in (exact, sketched):
            cov.update(activations=patterns(3000, seed))
        ratios.append(sketched.values()["TKNP(4, sketch=256)"] / exact.values()["TKNP(4)"])
    ratios = torch.tensor(ratios)
    error = 1 / math.sqrt(k)
    assert abs(float(ratios.mean()) - 1) < 4 * error / math.sqrt(len(ratios))
    assert 0.6 * error < float(ratios.std()) < 1.4 * error


def test_small_suites_are_exact():
    for exact, sketched in ((nc.TKNP(2), nc.TKNP(2, sketch=200)), (nc.LCC(), nc.LCC(sketch=200))):
        cov = nc.Coverage.of_layers({"a": 12, "b": 9}, [exact, sketched])
        cov.calibrate(activations=patterns(500, 9), predictions=torch.arange(500) % 3)
        cov.update(activations=patterns(150), predictions=torch.arange(150) % 3)
        values, details = cov.values(), cov.details()
        assert values[exact.name] == values[sketched.name]
        assert details[exact.name] == details[sketched.name]


def test_figures_of_lcc_within_the_error_of_the_sketch():
    widths = {f"layer{index}": 6 for index in range(24)}
    generator = torch.Generator().manual_seed(3)

    def draw(inputs):
        return {name: torch.randn(inputs, width, generator=generator) for name, width in widths.items()}

    k = 300
    exact, sketched = nc.LCC(over="mean"), nc.LCC(over="mean", sketch=k)
    cov = nc.Coverage.of_layers(widths, [exact, sketched])
    cov.calibrate(activations=draw(4000))
    cov.update(activations=draw(4000))
    whole, estimate = (cov.details()[criterion.name] for criterion in (exact, sketched))
    # Layers have keys of their own, so that the error of their mean is smaller still.
    error = 4 / math.sqrt(k * len(widths))
    assert cov.states[1].seen.compact().keys.shape[0] == k * len(widths) < cov.states[0].seen.compact().keys.shape[0]
    values = cov.values()
    assert values[sketched.name] == pytest.approx(values[exact.name], rel=error)
    # Shares of inputs and of rare kinds are sums that few kinds carry.
    for figure, factor in (("relative", 1), ("next", 1.5), ("new_decisions", 3), ("off_map", 3), ("to_come", 4)):
        if figure in whole:
            assert estimate[figure] == pytest.approx(whole[figure], rel=factor * error, abs=1e-3), figure


def test_order_split_and_merging_change_nothing_to_the_bit():
    suite = patterns(2000)
    predictions = torch.arange(2000) % 3
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(1))

    def cov():
        made = nc.Coverage.of_layers({"a": 12, "b": 9}, [nc.TKNP(3, sketch=64), nc.LCC(sketch=64)])
        made.calibrate(activations=patterns(500, 9), predictions=torch.arange(500) % 3)
        return made

    whole = cov()
    whole.update(activations=suite, predictions=predictions)
    parts = [cov() for _ in range(3)]
    for index, rows in enumerate(order.split(70)):
        part = {name: outputs[rows] for name, outputs in suite.items()}
        parts[index % 3].update(activations=part, predictions=predictions[rows])
    parts[2].merge(parts[0])
    parts[2].merge(parts[1])
    assert parts[2].values() == whole.values()
    assert [fingerprint(s) for s in parts[2].states] == [fingerprint(s) for s in whole.states]
    again = nc.Coverage.from_bytes(whole.to_bytes())
    assert again.values() == whole.values()
    assert again.details() == whole.details()


def test_a_sketch_keeps_its_size():
    cov = nc.Coverage.of_layers({"a": 12, "b": 9}, [nc.TKNP(4, sketch=128)])
    for seed in range(5):
        cov.update(activations=patterns(2000, seed))
    assert cov.states[0].seen.compact().keys.shape == (128, 2)
    assert cov.rarefied(10) == {}

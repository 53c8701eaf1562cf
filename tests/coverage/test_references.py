"""References of held-out training inputs, beside the same computed by hand with nothing but a fresh coverage."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.digests import content_keys
from neuralcov.coverage.references import HeldOut
from neuralcov.results.references import ReferenceCurve

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")

CRITERIA = [
    nc.LCC(), nc.KMNC(10), nc.NC(0.75), nc.TKNP(2), nc.DSC(0.1), nc.LVC(), nc.NLC(), nc.CC(2), nc.LVC(relative=True)
]  # fmt: skip


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)).double().eval()


def data(seed, size):
    x = torch.randn(size, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, (x[:, 0] > 0).long()


def batches(x, y, size=32):
    return list(zip(x.split(size), y.split(size), strict=True))


def place(x):
    """The number from 0 to 1 that decides, from the written definition: the top 53 bits of the second word."""
    return np.array([(int(word) % 2**64 >> 11) / 2**53 for word in content_keys([x])[:, 1]])


TRAIN, SUITE = data(1, 400), data(2, 90)


@pytest.fixture(scope="module")
def shared_out():
    cov = nc.Coverage(network(), CRITERIA)
    # By class, as folders give them.
    order = TRAIN[1].argsort()
    cov.calibrate(batches(TRAIN[0][order], TRAIN[1][order]), held_out=0.3)
    cov.assess(batches(*SUITE))
    return cov


def by_hand(size):
    """Every value for the first of the held-out inputs, of a coverage that learnt from the others alone."""
    where = place(TRAIN[0])
    order = torch.from_numpy(np.argsort(where)[: (where < 0.3).sum()])
    kept = torch.from_numpy(where >= 0.3)
    cov = nc.Coverage(network(), CRITERIA)
    cov.calibrate(batches(TRAIN[0][kept], TRAIN[1][kept]), held_out=batches(TRAIN[0][order], TRAIN[1][order]))
    cov.assess(batches(TRAIN[0][order][:size], TRAIN[1][order][:size]))
    return cov, len(order)


def test_what_a_share_holds_out_and_learns(shared_out):
    cov, count = by_hand(50)
    assert 90 < count < 150
    assert cov.calibration_ids() == pytest.approx(cov.calibration_ids())
    fresh, _ = cov.fork(), cov.reset()
    fresh.reset()
    fresh.assess(batches(*SUITE))
    for name, value in fresh.values().items():
        # Moments were summed in another order.
        assert shared_out.values()[name] == pytest.approx(value, rel=1e-9), name
    assert shared_out.sanity().accuracy_in_training == pytest.approx(fresh.sanity().accuracy_in_training)


def test_references_are_values_of_so_many_held_out_inputs(shared_out):
    found = shared_out.references()
    # LCC says itself what it is relative to training data.
    assert list(found) == [criterion.name for criterion in CRITERIA[1:]]
    _, count = by_hand(1)
    for size in (1, 2, 16, 64, count):
        expected, _ = by_hand(size)
        for name, value in expected.values(warn=False).items():
            if name != "LCC":
                reference = found[name]
                assert reference.sizes == (1, 2, 4, 8, 16, 32, 64, count)
                assert reference.values[reference.sizes.index(size)] == pytest.approx(value, rel=1e-9, abs=1e-12), name
    for reference in found.values():
        low, high = (reference.values[reference.sizes.index(size)] for size in (64, count))
        assert reference.inputs == 90
        share = (math.log(90) - math.log(64)) / (math.log(count) - math.log(64))
        assert reference.value == pytest.approx(low + share * (high - low))


def test_beyond_their_number_nothing_is_made_up(shared_out):
    cov = shared_out.fork()
    cov.update(*data(3, 400))
    found = cov.references()["KMNC(10)"]
    assert (found.inputs, found.value) == (found.sizes[-1], found.values[-1])
    cov.reset()
    assert cov.references() == {}


def test_a_loader_of_held_out_inputs_and_bare_activations():
    learnt, apart = data(4, 200), data(5, 40)
    cov = nc.Coverage(network(), [nc.KMNC(10), nc.LVC(relative=True)])
    cov.calibrate(batches(*learnt), held_out=batches(*apart))
    cov.assess(batches(*apart))
    # The same inputs, to the bit but for the order of sums; and relative to themselves.
    for name, value in cov.values(warn=False).items():
        assert cov.references()[name].value == pytest.approx(value, rel=1e-9)
    assert cov.values(warn=False)["LVC(relative=True)"] == pytest.approx(1)
    bare = nc.Coverage.of_layers({"fc": 6}, [nc.KMNC(10)])
    bare.calibrate(activations={"fc": learnt[0]}, held_out={"fc": apart[0]})
    bare.update(activations={"fc": apart[0]})
    assert bare.references()["KMNC(10)"].value == bare.values()["KMNC(10)"]
    divided = nc.Coverage.of_layers({"fc": 6}, [nc.KMNC(10)])
    divided.calibrate(activations={"fc": learnt[0]}, held_out=0.25)
    keys = nc.Activations({"fc": learnt[0]}).content_keys
    divided.update(activations={"fc": learnt[0]})
    chosen = np.array([(int(word) % 2**64 >> 11) / 2**53 for word in keys[:, 1]]) < 0.25
    assert divided.references()["KMNC(10)"].sizes[-1] == chosen.sum()


def test_the_growing_rule_is_followed_in_batches(shared_out):
    # NLC depends on batches: every size is measured anew, in those of training.
    reference = shared_out.references()["NLC"]
    expected, _ = by_hand(64)
    assert reference.values[reference.sizes.index(64)] == pytest.approx(expected.values(warn=False)["NLC"], rel=1e-9)


def test_files_keep_them(shared_out, tmp_path):
    shared_out.save(tmp_path / "a.ncov")
    shared_out.save_calibration(tmp_path / "a.ncal")
    expected = shared_out.references()
    assert nc.Coverage.load(tmp_path / "a.ncov").references() == expected
    again = nc.Coverage(network(), CRITERIA)
    again.calibrate(tmp_path / "a.ncal")
    again.assess(batches(*SUITE))
    assert again.references() == expected
    assert again.results().references == expected
    merged = again.fork()
    merged.reset()
    merged.merge(again)
    assert merged.references() == expected
    assert nc.Coverage.load(tmp_path / "a.ncov", calibration=tmp_path / "a.ncal").references() == expected
    other = nc.Coverage(network(), [nc.KMNC(10), nc.SNAC()])
    other.calibrate(tmp_path / "a.ncal")
    other.assess(batches(*SUITE))
    assert list(other.references()) == ["KMNC(10)"]


def test_no_more_is_kept_than_memory_allows():
    x, _ = data(6, 300)
    layers = [nc.Activations({"fc": part}, keys=content_keys([part])) for part in x.split(50)]
    bounded = HeldOut(most_bytes=6 * 4 * 100)
    for part in layers:
        bounded.add(part)
    assert 25 <= bounded.inputs <= 100
    layout = layers[0].layout
    few = bounded.references([nc.TKNC(2)], layout)["TKNC(2)"]
    everything = HeldOut()
    for part in layers:
        everything.add(part)
    whole = everything.references([nc.TKNC(2)], layout)["TKNC(2)"]
    # Those of smallest rank, so that at each size they are the same inputs.
    powers = few.sizes[:-1]
    assert (powers, few.values[: len(powers)]) == (whole.sizes[: len(powers)], whole.values[: len(powers)])


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0, "expected a share between 0 and 1"),
        (1, "expected a share between 0 and 1"),
        (True, "expected a share between 0 and 1"),
        (1e-9, "held out none of 400 training inputs"),
        (1 - 1e-9, "saw no input"),
    ],
)
def test_shares_that_cannot_be(share, said):
    cov = nc.Coverage(network(), [nc.KMNC(10)])
    with pytest.raises(nc.NeuralcovError, match=said):
        cov.calibrate(batches(*TRAIN), held_out=share)


def test_folds_of_a_relative_value_come_from_what_is_held_out_alone():
    # Held out between batches of training data, as a share does it: the same as after them.
    name = "LVC(relative=True, groups=10)"
    where = place(TRAIN[0]) < 0.4
    apart, rest = (tuple(part[torch.from_numpy(mask)] for part in TRAIN) for mask in (where, ~where))
    one, other = (nc.Coverage(network(), [nc.LVC(relative=True, groups=10)]) for _ in range(2))
    one.calibrate(batches(*TRAIN), held_out=0.4)
    other.calibrate(batches(*rest), held_out=batches(*apart))
    for cov in (one, other):
        cov.assess(batches(*SUITE))
    assert one.values(warn=False)[name] == pytest.approx(other.values(warn=False)[name], rel=1e-9)


@pytest.mark.parametrize(
    "content",
    [
        {"sizes": [], "values": [], "definition": 1},
        {"sizes": [2, 1], "values": [0.1, 0.2], "definition": 1},
        {"sizes": [1], "values": [math.inf], "definition": 1},
        {"sizes": [0], "values": [0.1], "definition": 1},
    ],
)
def test_damaged_references(content):
    with pytest.raises(ValueError, match="reference of sizes"):
        ReferenceCurve.from_json(content)

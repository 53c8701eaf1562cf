"""LVC along random directions: another number, right for what it is, of fixed size."""

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.layout import Layout
from neuralcov.testing import check_criterion
from tests.criteria.lvc.test_lvc import bits
from tests.criteria.nlc.test_sketch import directions

WIDTHS = {"wide": 40, "narrow": 6}


def layers(seed, size, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return {name: spread * torch.randn(size, width, generator=generator) for name, width in WIDTHS.items()}


def measured(*criteria, data=None, **calibrate):
    cov = nc.Coverage.of_layers(WIDTHS, criteria)
    cov.calibrate(activations=layers(1, 200), **calibrate)
    cov.update(activations=layers(2, 90, 1.3) if data is None else data)
    return cov


def projected(rows, name):
    return rows.double().numpy() @ directions(name, 40, 8) if name == "wide" else rows.double().numpy()


@pytest.mark.parametrize(
    "criterion",
    [nc.LVC(sketch=2), nc.LVC(sketch=3, groups=2), nc.LVC(sketch=2, relative=True)],
    ids=lambda criterion: criterion.name,
)
def test_laws(criterion):
    check_criterion(criterion)


@pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
def test_the_value_is_that_of_the_projection():
    cov = measured(nc.LVC(sketch=8), nc.LVC(sketch=40), nc.LVC(), nc.LVC(sketch=8, relative=True))
    training, suite = layers(1, 200), layers(2, 90, 1.3)
    expected, reference = (
        [bits(projected(rows[name], name), projected(training[name], name)) for name in WIDTHS]
        for rows in (suite, training)
    )
    values = cov.values()
    assert values["LVC(sketch=8)"] == pytest.approx(np.mean(expected), rel=1e-9)
    assert values["LVC(relative=True, sketch=8)"] == pytest.approx(np.mean(expected) / np.mean(reference), rel=1e-9)
    assert [row.values["LVC(sketch=8)"] for row in cov.by_layer()] == pytest.approx(expected, rel=1e-9)
    assert [row.neurons for row in cov.by_layer()] == [40, 6]
    # Layers that are no wider than the directions are looked at as they are.
    assert values["LVC(sketch=40)"] == values["LVC"]


@pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
def test_parts_merge_and_files_go_on(tmp_path):
    suite = layers(2, 90, 1.3)
    parts = [{name: rows[some] for name, rows in suite.items()} for some in (slice(0, 50), slice(50, 90))]
    criteria = [nc.LVC(sketch=8), nc.LVC(sketch=8, groups=3)]
    one, other = (measured(*criteria, data=part) for part in parts)
    one.merge(other)
    whole = measured(*criteria).values()
    assert one.values() == pytest.approx(whole, rel=1e-12)
    one.save(tmp_path / "x.ncov")
    one.save_calibration(tmp_path / "x.ncal")
    again = nc.Coverage.load(tmp_path / "x.ncov")
    assert again.values() == one.values()
    fresh = nc.Coverage.of_layers(WIDTHS, criteria)
    fresh.calibrate(tmp_path / "x.ncal")
    fresh.update(activations=suite)
    assert fresh.values() == whole
    with pytest.raises(nc.NeuralcovError, match="criteria differ"):
        fresh.merge(measured(nc.LVC()))


@pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
def test_the_same_data_give_the_same_bits():
    first, second = (measured(nc.LVC(sketch=8)).to_bytes() for _ in range(2))
    assert nc.Coverage.from_bytes(first).values() == nc.Coverage.from_bytes(second).values()


@pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
def test_wide_layers_fit():
    random = torch.Generator().manual_seed(1)
    wide = {"wide": torch.randn(60, 200_000, generator=random)}
    with pytest.raises(nc.NeuralcovError, match=r"give sketch= a number of directions"):
        nc.Coverage.of_layers({"wide": 200_000}, [nc.LVC()]).calibrate(activations=wide)
    cov = nc.Coverage.of_layers({"wide": 200_000}, [nc.LVC(sketch=16)])
    cov.calibrate(activations=wide)
    cov.update(activations=wide)
    assert 0.9 < cov.values()["LVC(sketch=16)"] < 1.01  # log2(1 + 1), as the suite is the training data
    state = cov.states[0]
    assert state.folds[0][0].scatter.shape == (1, 16, 16)
    layout = Layout({"wide": 200_000}, "meta")
    assert nc.LVC(sketch=16).cost(layout, None).state < 100_000


def test_directions_are_a_whole_number():
    with pytest.raises(nc.NeuralcovError, match=r"LVC\(sketch=0\): sketch must be"):
        nc.LVC(sketch=0)
    assert nc.LVC(sketch=64).name == "LVC(sketch=64)"

"""What a coverage refuses, and what it leaves as it was: batches, activations, criteria and options that do not fit."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from tests.coverage.coverage_support import CRITERIA, make_inputs, make_net


@pytest.fixture
def net():
    return make_net()


@pytest.fixture
def inputs():
    return make_inputs()


def test_what_calibration_would_not_use_is_refused():
    coverage = nc.Coverage.of_layers({"a": 1}, [nc.DSC(0.1)])
    rows = {"a": np.array([[0.0], [1.0]])}
    with pytest.raises(nc.NeuralcovError, match="go with one mapping of activations"):
        coverage.calibrate(activations=[rows, rows], predictions=[0, 1])
    with pytest.raises(nc.NeuralcovError, match="held_out= goes with training data"):
        coverage.calibrate("some.ncal", held_out=rows)


def test_nan_inputs_are_reported_once(net, inputs):
    coverage = nc.Coverage(net, [nc.NC(0.5), nc.TKNC(1)])
    inputs[3] = torch.nan
    inputs[5, 0] = torch.inf
    coverage.update(inputs)
    with pytest.warns(nc.CoverageWarning, match="2 inputs with NaN or infinite outputs were left out"):
        coverage.values()
    assert [(f.criterion, f.inputs) for f in coverage.findings()] == [("NC(0.5)", 2), ("TKNC(1)", 2)]
    clean = nc.Coverage(net, [nc.NC(0.5), nc.TKNC(1)])
    clean.update(inputs[torch.isfinite(inputs).all(1)])
    assert coverage.values() == clean.values()


def test_nan_in_calibration_is_reported(tmp_path):
    rows = np.random.default_rng(0).standard_normal((30, 2)).astype(np.float32)
    rows[3, 1] = np.nan
    coverage = nc.Coverage.of_layers({"a": 2}, [nc.KMNC(10), nc.LVC()])
    with pytest.warns(nc.CoverageWarning, match="calibration: 1 training input with NaN or infinite outputs"):
        coverage.calibrate(activations={"a": rows})
    coverage.save_calibration(tmp_path / "some.ncal")
    again = nc.Coverage.of_layers({"a": 2}, [nc.KMNC(10), nc.LVC()])
    again.calibrate(tmp_path / "some.ncal")
    again.update(activations={"a": rows[:2]})
    sentences = [str(finding) for finding in again.findings()]
    assert "calibration: 1 training input with NaN or infinite outputs was left out" in sentences
    assert "LVC: calibrated on 29 inputs, fewer than" not in sentences
    with pytest.raises(nc.NeuralcovError, match="saw no input whose outputs are finite, among 30"):
        nc.Coverage.of_layers({"a": 2}, [nc.KMNC(10)]).calibrate(activations={"a": rows * np.nan})


def test_float64_counts_as_infinite_where_squares_of_it_are_beyond_float64():
    coverage = nc.Coverage.of_layers({"a": 1}, [nc.DSC(0.1)])
    coverage.calibrate(activations={"a": np.array([[0.0], [1.0]])}, predictions=[0, 1])
    found = coverage.scores(activations={"a": np.array([[1e200], [1e60], [0.5]])}, predictions=[0, 0, 0])["DSC(0.1)"]
    np.testing.assert_array_equal(found, [np.nan, 1e60, 0.5])


def test_pytorchs_default_precision_changes_nothing(request):
    rows = np.random.default_rng(0).standard_normal((20, 5)).astype(np.float32)
    activations, predictions = {"a": rows[:, :3], "b": rows[:, 3:]}, [0, 1] * 10
    criteria = [nc.DSC(0.1), nc.LSC(10), nc.MDSC(10), nc.CC(1), nc.SS(), nc.LVC(), nc.NLC(), nc.KMNC(10), nc.TKNP(1)]
    before = torch.get_default_dtype()
    request.addfinalizer(lambda: torch.set_default_dtype(before))
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        coverage = nc.Coverage.of_layers({"a": 3, "b": 2}, criteria)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.calibrate(activations=activations, predictions=predictions)
            coverage.update(activations=activations, predictions=predictions)
            found.append(coverage.values())
    assert found[0] == found[1]


def test_numbers_of_numpy_are_plain_numbers():
    criteria = [nc.TKNC(np.int64(3)), nc.NC(np.float32(0.5))]
    assert [criterion.name for criterion in criteria] == ["TKNC(3)", "NC(0.5)"]
    assert type(criteria[0].k) is int


def test_an_empty_batch(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    coverage.update(inputs[:0])
    assert coverage.values() == {"NLC": 0.0, "NC(0.5)": 0.0, "TKNC(2)": 0.0}
    assert {name: gain.shape for name, gain in coverage.gain(inputs[:0]).items()} == dict.fromkeys(
        coverage.values(), (0,)
    )


def test_zero_length_loaders(net):
    coverage = nc.Coverage(net, [nc.KMNC(10)])
    with pytest.raises(nc.NeuralcovError, match="calibration saw no input"):
        coverage.calibrate([])
    with pytest.raises(nc.NeuralcovError, match="gave no batch"):
        nc.Coverage(net, [nc.NC()]).assess(iter([]))


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ([nc.NC(), nc.NC(0.75)], r"the criterion NC\(0.75\) is given 2 times"),
        ([], "no criteria"),
        ([nc.NC], "is not a criterion"),
        (["nlc"], "'nlc' is not a criterion"),
    ],
)
def test_wrong_criteria(net, criteria, message):
    with pytest.raises(nc.NeuralcovError, match=message):
        nc.Coverage(net, criteria)


@pytest.mark.parametrize("criteria", [nc.NLC(), None, "nlc"])
def test_criteria_come_in_a_list(net, criteria):
    with pytest.raises(nc.NeuralcovError, match=r"expected a list, for example \[nc.NLC\(\)"):
        nc.Coverage(net, criteria)


@pytest.mark.parametrize("options", [{"predict": "argmax"}, {"steps": "a"}, {"batch_axis": "x"}])
def test_options_of_the_wrong_type(net, options):
    with pytest.raises(nc.NeuralcovError, match=f"{next(iter(options))}="):
        nc.Coverage(net, [nc.NC()], **options)


def test_wrong_batches(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    with pytest.raises(nc.NeuralcovError, match="either inputs or activations"):
        coverage.update()
    with pytest.raises(nc.NeuralcovError, match="either inputs or activations"):
        coverage.update(inputs, activations={"0": inputs})
    with pytest.raises(nc.NeuralcovError, match="predictions= goes with activations="):
        coverage.update(inputs, predictions=[0] * 40)
    coverage.update(inputs)
    with pytest.raises(nc.NeuralcovError, match=r"the batch lacks layer '2'"):
        coverage.update(activations={"0": torch.zeros(1, 8)})
    with pytest.raises(nc.NeuralcovError, match=r"data of type Tensor: expected a loader"):
        coverage.assess(inputs)


def test_wrong_activations():
    coverage = nc.Coverage.of_layers({"a": 3, "b": 2}, CRITERIA)
    with pytest.raises(nc.NeuralcovError, match=r"layer 'a' has 4 neurons in the batch but 3"):
        coverage.update(activations={"a": torch.zeros(1, 4), "b": torch.zeros(1, 2)})
    with pytest.raises(nc.NeuralcovError, match=r"layer 'a' have type .* and shape \(3,\)"):
        coverage.update(activations={"a": torch.zeros(3), "b": torch.zeros(1, 2)})
    with pytest.raises(nc.NeuralcovError, match="layers of different batch sizes"):
        coverage.update(activations={"a": torch.zeros(2, 3), "b": torch.zeros(1, 2)})
    with pytest.raises(nc.NeuralcovError, match=r"labels of type torch.float32 .* expected 2 integers"):
        coverage.update(activations={"a": torch.zeros(2, 3), "b": torch.zeros(2, 2)}, labels=torch.zeros(2))
    with pytest.raises(nc.NeuralcovError, match="expected at least one layer"):
        coverage.update(activations={})
    with pytest.raises(nc.NeuralcovError, match="has no model to run inputs through"):
        coverage.update(torch.zeros(2, 3))
    with pytest.raises(nc.NeuralcovError, match="layer 'a' has 0 neurons"):
        nc.Coverage.of_layers({"a": 0}, CRITERIA)


def test_the_model_is_left_as_it_was(net, inputs):
    net.train()
    net[0].eval()
    before = copy.deepcopy(net.state_dict())
    coverage = nc.Coverage(net, [nc.KMNC(10), nc.NLC()])
    coverage.calibrate([inputs])
    with coverage.tap():
        coverage.update(inputs)
        coverage.gain(inputs)
        assert not net.training
    assert net.training
    assert not net[0].training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())


def test_keep_mode(inputs):
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)).train()
    coverage = nc.Coverage(net, [nc.NLC()], mode="keep")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        coverage.update(inputs)
    evaluated = nc.Coverage(net, [nc.NLC()])
    evaluated.update(inputs)
    assert coverage.values() != evaluated.values()


def test_an_empty_batch_may_come_with_empty_lists():
    coverage = nc.Coverage.of_layers({"fc": 2}, [nc.LSC(10)])
    coverage.calibrate(activations={"fc": torch.randn(9, 2)}, predictions=[0] * 9)
    coverage.update(activations={"fc": torch.randn(0, 2)}, predictions=[])
    assert coverage.values() == {"LSC(10)": 0.0}


def test_values_keep_quiet_if_asked_to(net, inputs):
    coverage = nc.Coverage(net, [nc.NC(0.5)])
    with pytest.warns(nc.CoverageWarning, match="NaN"):
        coverage.assess([torch.cat([inputs[:3], torch.full((1, 6), torch.nan)])])
    coverage.reset()
    coverage.update(torch.cat([inputs[:3], torch.full((1, 6), torch.nan)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = coverage.values(warn=False)
    with pytest.warns(nc.CoverageWarning, match="1 input with NaN"):
        assert coverage.values() == quiet

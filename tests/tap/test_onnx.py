"""ONNX models against the torch models they were exported from, and against NumPy."""

import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov import demo
from neuralcov.tap import Batch, Tap
from neuralcov.tap.onnx import OnnxModel

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


pytestmark = [
    # Torch's own, about its exporters.
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
BOTH = pytest.mark.parametrize("dynamo", [False, True], ids=["legacy", "dynamo"])


def exported(model, example, path, *, dynamo=False, fixed=False, **options):
    if dynamo:
        pytest.importorskip("onnxscript")
        options |= {"verbose": False, "dynamic_shapes": None if fixed else ({0: torch.export.Dim("batch")},)}
    elif not fixed:
        options["dynamic_axes"] = {"x": {0: "batch"}, "y": {0: "batch"}}
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(model.eval(), (example,), path, dynamo=dynamo, **names, **options)
    return path


def activations(model, inputs):
    return Tap(model).run(Batch(inputs), predictions=True)[0]


@pytest.fixture(scope="module")
def digits_file(digits_net, tmp_path_factory):
    with warnings.catch_warnings(action="ignore"):
        return exported(digits_net, torch.zeros(2, 1, 8, 8), tmp_path_factory.mktemp("onnx") / "digits.onnx")


def criteria():
    return [nc.NC(0.75), nc.KMNC(10), nc.TKNC(2), nc.SNAC(), nc.NLC(), nc.LCC()]


@pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")
@BOTH
def test_digits_are_covered_as_by_the_torch_model(digits_net, dynamo, tmp_path):
    digits_file = exported(digits_net, torch.zeros(2, 1, 8, 8), tmp_path / "digits.onnx", dynamo=dynamo)
    train, test = demo.digits("train"), demo.digits("test")
    ours, theirs = nc.Coverage(digits_net, criteria()), nc.Coverage(digits_file, criteria())
    ours.calibrate(train.pixels().split(100))
    ours.assess(zip(test.pixels().split(100), test.labels.split(100), strict=True))
    # The ONNX model is given NumPy arrays.
    theirs.calibrate([part.numpy() for part in train.pixels().split(100)])
    pairs = zip(test.pixels().split(100), test.labels.split(100), strict=True)
    theirs.assess([(inputs.numpy(), labels.numpy()) for inputs, labels in pairs])
    assert dict(theirs.layout.widths) == dict(ours.layout.widths) == {"conv1": 16, "conv2": 32, "fc1": 64, "fc2": 10}
    assert theirs.values() == pytest.approx(ours.values(), rel=1e-5)


@BOTH
@pytest.mark.parametrize("rank", [2, 3])
def test_a_perceptron_has_the_outputs_of_its_linear_layers(rank, dynamo, tmp_path):
    # Of three axes, linear layers become MatMul and Add.
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 3))
    inputs = torch.randn(5, *([4] if rank == 3 else []), 6)
    file = exported(model, inputs[:2], tmp_path / "mlp.onnx", dynamo=dynamo)
    ours, theirs = Tap(model).run(Batch(inputs))[0], Tap(OnnxModel(file)).run(Batch(inputs))[0]
    same(ours, theirs, names=rank == 2 or dynamo)


def same(ours, theirs, names=True):
    assert len(theirs.layers) == len(ours.layers)
    assert not names or list(theirs.layers) == list(ours.layers)
    for mine, other in zip(ours.layers.values(), theirs.layers.values(), strict=True):
        torch.testing.assert_close(other, mine)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep = nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.Conv2d(6, 6, 1, groups=6, bias=False)
        self.up, self.line = nn.ConvTranspose2d(6, 8, 2, groups=2), nn.Linear(8, 5, bias=False)

    def forward(self, x):
        return self.line(self.up(self.deep(self.down(x)).relu()).mean((2, 3)))


@BOTH
def test_groups_transposed_convolutions_and_missing_biases(dynamo, tmp_path):
    torch.manual_seed(0)
    model, inputs = Decoder(), torch.randn(3, 4, 9, 9)
    file = exported(model, inputs[:2], tmp_path / "decoder.onnx", dynamo=dynamo)
    same(activations(model, inputs), activations(OnnxModel(file), inputs), names=dynamo)


@BOTH
def test_a_batch_norm_is_folded_into_the_convolution_before_it_unless_the_exporter_is_told_not_to(dynamo, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2)).eval()
    model[1].running_mean.normal_()
    inputs = torch.randn(4, 2, 6, 6)
    file = exported(model, inputs[:2], tmp_path / "norm.onnx", dynamo=dynamo)
    layer = next(iter(activations(OnnxModel(file), inputs).layers.values()))
    torch.testing.assert_close(layer, model[:2](inputs).mean((2, 3)))
    plain = {"optimize": False} if dynamo else {"do_constant_folding": False}
    file = exported(model, inputs[:2], tmp_path / "plain.onnx", dynamo=dynamo, **plain)
    same(activations(model, inputs), activations(OnnxModel(file), inputs))


def test_a_shared_layer_is_a_second_call(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(self.fc(x).relu())

    file = exported(Twice(), torch.zeros(2, 4), tmp_path / "twice.onnx")
    assert list(activations(OnnxModel(file), torch.randn(3, 4)).layers) == ["fc", "fc#1"]


def test_a_graph_with_a_fixed_batch_takes_any_number_of_inputs(digits_net, tmp_path):
    file = exported(digits_net, torch.zeros(4, 1, 8, 8), tmp_path / "four.onnx", fixed=True)
    inputs = demo.digits("test").pixels()[:10]
    fixed, torch_layers = activations(OnnxModel(file), inputs), activations(digits_net, inputs)
    assert torch.equal(fixed.predictions, torch_layers.predictions)
    for name, values in torch_layers.layers.items():
        torch.testing.assert_close(fixed.layers[name], values)


def test_a_quantised_model_is_read_before_its_outputs_are_rounded(digits_net, digits_file, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    inputs = demo.digits("train").pixels()[:64]

    class Reader(quantization.CalibrationDataReader):
        rows = iter(inputs.split(16))

        def get_next(self):
            part = next(self.rows, None)
            return None if part is None else {"x": part.numpy()}

    qdq = quantization.QuantFormat.QDQ
    quantization.quantize_static(digits_file, tmp_path / "qdq.onnx", Reader(), quant_format=qdq)
    graph = onnx.load(tmp_path / "qdq.onnx").graph
    assert "DequantizeLinear" in {node.op_type for node in graph.node}
    whole, rounded = activations(OnnxModel(digits_file), inputs), activations(OnnxModel(tmp_path / "qdq.onnx"), inputs)
    assert list(rounded.layers) == ["conv1", "conv2", "fc1", "fc2"]
    assert (whole.predictions == rounded.predictions).float().mean() > 0.9
    # The quantiser drops the ReLU, since its unsigned integers hold no negative number; what is read holds some.
    assert "Relu" not in {node.op_type for node in graph.node}
    assert (rounded.layers["fc1"] < 0).any()
    for name, values in whole.layers.items():
        assert (rounded.layers[name] - values).abs().mean() < 0.05 * values.abs().mean()


def test_a_product_whose_rounded_output_is_given_its_bias(tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), torch.randn(8, 4, 6)
    file = exported(model, inputs[:2], tmp_path / "mlp.onnx", dynamo=True)

    class Reader(quantization.CalibrationDataReader):
        rows = iter([inputs])

        def get_next(self):
            part = next(self.rows, None)
            return None if part is None else {"x": part.numpy()}

    qdq = quantization.QuantFormat.QDQ
    quantization.quantize_static(file, tmp_path / "qdq.onnx", Reader(), quant_format=qdq)
    ours, theirs = Tap(model).run(Batch(inputs))[0], Tap(OnnxModel(tmp_path / "qdq.onnx")).run(Batch(inputs))[0]
    assert list(theirs.layers) == ["0", "2"]
    for name, values in ours.layers.items():
        assert (theirs.layers[name] - values).abs().mean() < 0.05 * values.abs().mean()


def test_integer_kernels_are_named_and_not_measured(digits_file, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    quantization.quantize_dynamic(digits_file, tmp_path / "dynamic.onnx", op_types_to_quantize=["MatMul", "Gemm"])
    with pytest.warns(nc.CoverageWarning, match="not measured: 2 MatMulInteger"):
        model = OnnxModel(tmp_path / "dynamic.onnx")
    assert list(Tap(model).chosen) == ["conv1", "conv2"]


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, a, b):
        return self.left(a) * self.right(b)


def test_inputs_go_by_their_names(tmp_path):
    torch.manual_seed(0)
    model, given = Two(), {"b": torch.randn(5, 2), "a": torch.randn(5, 3)}
    axes = {name: {0: "batch"} for name in "aby"}
    names = {"input_names": ["a", "b"], "output_names": ["y"]}
    example = (given["a"], given["b"])
    torch.onnx.export(model, example, tmp_path / "two.onnx", dynamo=False, dynamic_axes=axes, **names)
    theirs = OnnxModel(tmp_path / "two.onnx")
    same(activations(model, given), activations(theirs, given))
    same(activations(model, example), activations(theirs, example))
    with pytest.raises(nc.NeuralcovError, match="the graph takes a, b"):
        theirs(given["a"])


def test_a_layer_with_another_first_axis_needs_a_dynamic_batch(tmp_path):
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 2)

        def forward(self, x):
            return self.fc(x.transpose(0, 1)).sum(0)

    inputs = torch.randn(6, 5, 6)
    file = exported(Turned(), inputs[:3], tmp_path / "turned.onnx", fixed=True)
    with pytest.raises(nc.NeuralcovError, match="export it with a dynamic batch axis"):
        nc.Coverage(file, [nc.NC(0.5)]).update(inputs)


def test_a_missing_package_is_named_with_its_extra(digits_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(nc.NeuralcovError, match=r"neuralcov\[onnx\]"):
        nc.Coverage(digits_file, [nc.NC(0.5)])


def test_a_file_that_is_no_model_of_onnx_is_refused():
    with pytest.raises(nc.NeuralcovError, match=r"ends in \.onnx"):
        nc.Coverage("net.pt", [nc.NC(0.5)])


def test_a_perceptron_of_scikit_learn():
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    from sklearn.neural_network import MLPClassifier

    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(200, 5)).astype(np.float32), rng.integers(0, 3, 200)
    model = MLPClassifier((7,), max_iter=30, random_state=0).fit(inputs, labels)
    found = activations(OnnxModel(to_onnx(model, inputs[:1]).SerializeToString()), torch.from_numpy(inputs))
    first, second = found.layers.values()
    hidden = inputs @ model.coefs_[0] + model.intercepts_[0]
    np.testing.assert_allclose(first, hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        second, np.maximum(hidden, 0) @ model.coefs_[1] + model.intercepts_[1], rtol=1e-4, atol=1e-5
    )
    assert found.predictions.tolist() == model.predict(inputs).tolist()


def test_files_tell_models_apart(digits_net, digits_file, tmp_path):
    inputs = demo.digits("test").pixels()[:20]
    coverage = nc.Coverage(digits_file, [nc.NC(0.5)])
    coverage.update(inputs)
    coverage.save(tmp_path / "suite.ncov")
    again = nc.Coverage.load(tmp_path / "suite.ncov", digits_file)
    assert again.values() == coverage.values()
    file = exported(demo.DigitsNet(), inputs[:2], tmp_path / "other.onnx")
    with pytest.raises(nc.NeuralcovError, match="weights"):
        nc.Coverage.load(tmp_path / "suite.ncov", OnnxModel(file))


def test_what_does_not_fit_is_refused(digits_file, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"no model at all")
    with pytest.raises(nc.NeuralcovError, match="not an ONNX model"):
        OnnxModel(tmp_path / "bad.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(nc.NeuralcovError, match="holds no graph"):
        OnnxModel(tmp_path / "empty.onnx")
    with pytest.raises(nc.NeuralcovError, match="no such model file"):
        OnnxModel(tmp_path / "none.onnx")
    file = exported(nn.Sequential(nn.ReLU()), torch.zeros(2, 3), tmp_path / "relu.onnx")
    with pytest.raises(nc.NeuralcovError, match="no Conv, Gemm or MatMul with weights"):
        OnnxModel(file)
    with pytest.raises(nc.NeuralcovError, match="onnxruntime does not take inputs x"):
        nc.Coverage(digits_file, [nc.NC(0.5)]).update(torch.zeros(2, 3, 8, 8))
    with pytest.raises(nc.NeuralcovError, match="relevance"):
        nc.Coverage(digits_file, [nc.NPC()]).calibrate([(torch.rand(4, 1, 8, 8), torch.arange(4))])


def test_no_hook_is_left(digits_file):
    model = OnnxModel(digits_file)
    nc.Coverage(model, [nc.NC(0.5)]).update(torch.rand(2, 1, 8, 8))
    assert not any(module._forward_hooks for module in model.modules())

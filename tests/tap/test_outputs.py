import pytest
import torch

import neuralcov as nc
from neuralcov.tap.axes import OutputAxes
from neuralcov.tap.inputs import Padding
from neuralcov.tap.outputs import to_neurons
from neuralcov.tap.rows import RowOrder

CONV, LINEAR, OTHER = OutputAxes(channels_first=True), OutputAxes(channels_first=False), OutputAxes()


@pytest.mark.parametrize(
    ("shape", "kind", "averaged", "expected"),
    [
        ((4, 3), LINEAR, (), (4, 3)),
        ((4, 5, 3), LINEAR, (1,), (4, 3)),
        ((4, 2, 5, 3), LINEAR, (1, 2), (4, 3)),
        ((4, 3, 5), CONV, (2,), (4, 3)),
        ((4, 3, 5, 6), CONV, (2, 3), (4, 3)),
        ((4, 3, 5, 6, 2), CONV, (2, 3, 4), (4, 3)),
        ((4, 3, 5, 6), OTHER, (2, 3), (4, 3)),
        ((4, 5, 3), OTHER, (1,), (4, 3)),
    ],
)
def test_all_but_batch_and_features_are_averaged(shape, kind, averaged, expected):
    output = torch.randn(shape)
    found = to_neurons(output, 4, kind, "x")
    assert found.shape == expected
    torch.testing.assert_close(found, output.mean(averaged) if averaged else output)


def test_the_output_is_copied():
    output = torch.randn(2, 3)
    found = to_neurons(output, 2, LINEAR, "x")
    kept = found.clone()
    output.zero_()
    assert torch.equal(found, kept)


def test_a_multiple_of_the_batch_is_folded_as_its_order_says():
    output, images = torch.randn(6, 5, 3), torch.randn(6, 3, 4, 4)
    major, minor = RowOrder(0, "input-major", 3), RowOrder(0, "input-minor", 3)
    expected = output.reshape(2, 3, 5, 3).mean((1, 2))
    torch.testing.assert_close(to_neurons(output, 2, LINEAR, "x", order=major), expected)
    expected = output.reshape(3, 2, 5, 3).mean((0, 2))
    torch.testing.assert_close(to_neurons(output, 2, LINEAR, "x", order=minor), expected)
    expected = images.reshape(2, 3, 3, 4, 4).mean((1, 3, 4))
    torch.testing.assert_close(to_neurons(images, 2, CONV, "x", order=major), expected)
    expected = images.reshape(3, 2, 3, 4, 4).mean((0, 3, 4))
    torch.testing.assert_close(to_neurons(images, 2, CONV, "x", order=minor), expected)
    expected = torch.arange(6.0).reshape(2, 3).mean(1, keepdim=True)
    assert torch.equal(to_neurons(torch.arange(6.0), 2, LINEAR, "x", order=major), expected)


def test_a_shape_that_leaves_a_choice_is_refused_without_an_order():
    for shape in ((6, 3), (4, 2, 3), (2, 4, 3), (2, 2, 3)):
        with pytest.raises(nc.NeuralcovError, match=r"leaves open .*cov.probe\(inputs\).*layers='!x'.*rows="):
            to_neurons(torch.zeros(shape), 2, LINEAR, "x")
    assert to_neurons(torch.zeros(2, 5, 3), 2, LINEAR, "x").shape == (2, 3)
    with pytest.raises(nc.NeuralcovError, match="although its rows were found in place on axis 1"):
        to_neurons(torch.zeros(2, 5, 3), 2, LINEAR, "x", order=RowOrder(1))


def test_sequence_first_outputs():
    output = torch.randn(7, 4, 3)
    torch.testing.assert_close(to_neurons(output, 4, LINEAR, "x"), output.mean(0))


def test_no_axis_is_the_batch():
    with pytest.raises(nc.NeuralcovError, match=r"layer 'x' gave shape \(7, 5, 3\) for a batch of 4"):
        to_neurons(torch.zeros(7, 5, 3), 4, LINEAR, "x")


def test_one_number_per_input():
    assert to_neurons(torch.arange(4.0), 4, LINEAR, "x").tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_averaged_in_float32(dtype):
    output = torch.full((1, 1, 70, 70), 0.1, dtype=dtype)
    found = to_neurons(output, 1, CONV, "x")
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(output[0, 0, 0, 0].item(), rel=1e-6)


def test_double_stays_double():
    assert to_neurons(torch.zeros(2, 3, dtype=torch.float64), 2, LINEAR, "x").dtype == torch.float64


def test_averaging_over_tokens_uses_the_mask():
    output = torch.randn(2, 4, 3)
    mask = torch.tensor([[True, True, False, False], [False] * 4])
    found = to_neurons(output, 2, LINEAR, "x", Padding.of_mask(mask), order=RowOrder(0))
    torch.testing.assert_close(found[0], output[0, :2].mean(0))
    assert found[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_mask_changes_nothing_but_what_it_leaves_out(dtype):
    """All tokens by a mask are all tokens without one, to the last bit; some are averaged in float32 or wider."""
    output = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    everything = Padding.of_mask(torch.ones(3, 40, dtype=torch.bool))
    plain = to_neurons(output, 3, LINEAR, "x", order=RowOrder(0))
    assert torch.equal(to_neurons(output, 3, LINEAR, "x", everything, order=RowOrder(0)), plain)
    mask = torch.arange(40) < torch.tensor([[40], [7], [0]])
    found = to_neurons(output, 3, LINEAR, "x", Padding.of_mask(mask), order=RowOrder(0))
    assert found.dtype == plain.dtype
    expected = torch.stack([output[0].double().mean(0), output[1, :7].double().mean(0), torch.zeros(5).double()])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_nan_in_a_masked_token_does_not_leak():
    output = torch.ones(1, 2, 3)
    output[0, 1] = torch.nan
    assert to_neurons(output, 1, LINEAR, "x", Padding.of_mask(torch.tensor([[True, False]]))).tolist() == [[1, 1, 1]]


def test_complex_outputs_are_refused():
    with pytest.raises(nc.NeuralcovError, match=r"layer 'x' gave an output of type torch.complex64"):
        to_neurons(torch.zeros(2, 3, dtype=torch.complex64), 2, LINEAR, "x")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((4, 3), LINEAR), ((4, 5, 3), LINEAR), ((4, 3, 5, 6), CONV), ((8, 3, 5), CONV), ((0, 3, 5), CONV)],
)
def test_relevance_is_summed(shape, kind, monkeypatch):
    monkeypatch.setattr("neuralcov.tap.outputs.space_average", lambda output: output.flatten(2).mean(2))
    output = torch.randn(shape)
    size = min(4, shape[0])
    positions = output.numel() // max(1, 3 * size)
    order = RowOrder(0, "input-major")
    found = to_neurons(output, size, kind, "x", order=order, total=True)
    assert found.shape == (size, 3)
    torch.testing.assert_close(found.sum(), output.sum())
    if len(shape) > 2 and size:
        padding = Padding.of_mask(torch.ones(size, 1, dtype=torch.bool))
        plain = to_neurons(output, size, kind, "x", padding, order=order)
        torch.testing.assert_close(found, plain * positions)

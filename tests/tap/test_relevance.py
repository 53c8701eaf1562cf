"""The relevance pass: what it conserves, what it explains, what it leaves as it was, what it refuses."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import neuralcov as nc
from tests.tap.relevance_support import Plain, Residual, explain, images, seeded, totals, vectors


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_relevance_is_conserved_through_a_plain_network(dtype, tolerance):
    """Without biases every layer has all of it."""
    net = seeded(Plain, dtype, biases=False)
    relevance, output = explain(net, images(50, dtype=dtype))
    logit = output.max(1).values
    for total in totals(relevance).values():
        torch.testing.assert_close(total, logit, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-5), (torch.float32, 1e-4)])
def test_relevance_is_conserved_through_residual_sums(dtype, tolerance):
    """Without shifts, what the two ways through a block carry adds up."""
    net = seeded(Residual, dtype, biases=False)
    relevance, output = explain(net, images(50, side=8, dtype=dtype))
    total, logit = totals(relevance), output.max(1).values
    torch.testing.assert_close(total["fc"], logit)
    for whole in (total["layer2.conv2"] + total["layer2.downsample.0"], total["conv1"]):
        torch.testing.assert_close(whole, logit, rtol=tolerance, atol=tolerance)
    for block in ("layer1", "layer2"):
        torch.testing.assert_close(total[f"{block}.conv1"], total[f"{block}.conv2"], rtol=tolerance, atol=tolerance)


def test_what_is_lost_is_the_share_of_the_bias():
    """A linear layer's bias takes its share of either sign, a convolution's only what it adds."""
    linear = seeded(lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)))
    relevance, output = explain(linear, vectors(20))
    logit, chosen = output.max(1)
    torch.testing.assert_close(relevance["0"].sum(1), logit - linear[2].bias[chosen], rtol=1e-6, atol=1e-6)
    conv = seeded(lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 4), nn.Flatten()))
    inputs = images(20)
    relevance, output = explain(conv, inputs)
    logit, chosen = output.max(1)
    hidden = torch.relu(conv[0](inputs))
    positive = functional.conv2d(hidden, conv[2].weight.clamp(min=0)).flatten(1).gather(1, chosen[:, None])[:, 0]
    kept = positive / (positive + conv[2].bias.clamp(min=0)[chosen])
    torch.testing.assert_close(relevance["0"].sum(1), logit * kept, rtol=1e-6, atol=1e-6)
    assert (kept < 0.999).any()


def test_relevance_never_exceeds_what_positive_layers_were_given():
    """A negative bias must not create any: under captum's rule as it is, this network's would grow."""
    net = seeded(lambda: nn.Sequential(*[m for _ in range(8) for m in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())]))
    net = nn.Sequential(net, nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.constant_(module.bias, -0.05)
            nn.init.uniform_(module.weight, -0.1, 0.5)
    relevance, output = explain(net, images(10, channels=4).abs())
    total = list(totals(relevance).values())
    assert (output.max(1).values > 0).all()
    for earlier, later in itertools.pairwise(total):
        assert (earlier <= later * (1 + 1e-9)).all()


def test_float32_agrees_with_float64():
    net, inputs = seeded(Plain), images(20)
    double, _ = explain(net, inputs)
    single, _ = explain(copy.deepcopy(net).float(), inputs.float())
    for layer in double:
        assert single[layer].dtype == torch.float32
        torch.testing.assert_close(single[layer].double(), double[layer], rtol=1e-3, atol=1e-5)


# What is explained


@pytest.mark.parametrize("end", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sequential(nn.Dropout(), nn.Softmax(1))])
def test_relevance_starts_at_the_logit(end):
    net = seeded(lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)))
    inputs = vectors()
    expected, _ = explain(net, inputs)
    found, _ = explain(nn.Sequential(*net, end).eval(), inputs)
    for layer in expected:
        torch.testing.assert_close(found[layer], expected[layer])


def test_a_negative_logit_is_explained_by_what_speaks_for_it():
    net = seeded(lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)))
    net[2].bias.data -= 50
    relevance, output = explain(net, vectors())
    hidden = torch.relu(net[0](vectors())).detach()
    assert (output < 0).all()
    torch.testing.assert_close(relevance["0"], hidden * net[2].weight.detach()[output.argmax(1)], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("squeeze", [True, False])
@pytest.mark.parametrize("end", [None, torch.sigmoid])
def test_the_single_logit_of_two_classes(squeeze, end):
    class Binary(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 6), nn.Linear(6, 1, bias=False)

        def forward(self, x):
            x = self.b(torch.relu(self.a(x)))
            x = x[:, 0] if squeeze else x
            return x if end is None else end(x)

    net, inputs = seeded(Binary), vectors(20)
    predict = None if end is None else (lambda output: (output.reshape(-1) > 0.5).long())
    relevance, _ = explain(net, inputs, predict=predict)
    hidden = torch.relu(net.a(inputs)).detach()
    logit = net.b(hidden).detach()
    assert 0 < (logit > 0).sum() < 20
    # What speaks for class 0 is what lowers the logit.
    torch.testing.assert_close(relevance["a"], hidden * net.b.weight.detach() * logit.sign(), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(relevance["b"], logit.abs())


def test_the_class_that_predict_chooses():
    net = seeded(lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)))
    inputs = vectors()
    relevance, output = explain(net, inputs, predict=lambda output: output.argmin(1))
    logit, chosen = output.min(1)
    assert torch.equal(relevance["2"], torch.zeros_like(output).scatter_(1, chosen[:, None], logit[:, None]))
    with pytest.raises(nc.NeuralcovError, match=r"a predicted class outside 0 … 2: .* predict= must return its index"):
        explain(net, inputs, predict=lambda output: output.argmin(1) + 5)
    with pytest.raises(nc.NeuralcovError, match=r"output of shape \(6, 2, 3\) .* explains one logit per input"):
        explain(nn.Linear(5, 3).double(), torch.stack([inputs, inputs], 1), predict=lambda out: torch.zeros(6).long())


def test_logits_of_a_mapping():
    class Output(dict):
        @property
        def logits(self):
            return self["logits"]

    class Keyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 6), nn.Linear(6, 3)

        def forward(self, x, flag=None):
            hidden = self.a(x)
            return Output(loss=hidden.sum(), logits=self.b(torch.relu(hidden)))

    net = seeded(Keyword)
    found, _ = explain(net, {"x": vectors()})
    expected, _ = explain(nn.Sequential(net.a, nn.ReLU(), net.b), vectors())
    torch.testing.assert_close(found["a"], expected["0"])


# Each input for itself, and numbers at the edge


def test_inputs_do_not_touch_each_other():
    net, inputs = seeded(Residual), images(6)
    whole, _ = explain(net, inputs)
    broken = inputs.clone()
    broken[2] = torch.nan
    beside, _ = explain(net, broken)
    for i in (0, 1, 3, 4, 5):
        alone, _ = explain(net, inputs[i : i + 1])
        for layer in whole:
            torch.testing.assert_close(alone[layer][0], whole[layer][i], rtol=1e-7, atol=1e-10)
            torch.testing.assert_close(beside[layer][i], whole[layer][i], rtol=1e-7, atol=1e-10)
    assert beside["conv1"][2].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_contributes(dtype):
    """Zero weights, all-negative weights, zero inputs: relevance ends, nothing is divided by zero."""
    net = seeded(Plain, dtype)
    cases = [images(3, dtype=dtype), torch.zeros(3, 2, 6, 6, dtype=dtype), torch.full((3, 2, 6, 6), 1e30, dtype=dtype)]
    for change in (lambda w: w.zero_(), lambda w: w.abs_().neg_()):
        for name in ("conv1", "conv2", "fc1"):
            changed = copy.deepcopy(net)
            change(getattr(changed, name).weight.data)
            for inputs in cases:
                relevance, _ = explain(changed, inputs)
                assert all(values.isfinite().all() for values in relevance.values())


def test_an_empty_batch():
    relevance, _ = explain(seeded(Residual), images(0))
    assert {layer: tuple(values.shape) for layer, values in relevance.items()}["layer2.conv2"] == (0, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_explained_in_float32(dtype):
    net, inputs = seeded(Residual), images()
    expected, _ = explain(net.to(dtype).double(), inputs.to(dtype).double())
    found, _ = explain(net.to(dtype), inputs.to(dtype))
    for layer, values in found.items():
        assert values.dtype == torch.float32
        torch.testing.assert_close(values.double(), expected[layer], rtol=0.1, atol=0.05)


def test_autocast_and_inference_mode():
    net, inputs = seeded(Residual, torch.float32), images(dtype=torch.float32)
    expected, _ = explain(net, inputs)
    with torch.inference_mode():
        within, _ = explain(net, inputs.clone())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, _ = explain(net, inputs)
    for layer in expected:
        torch.testing.assert_close(within[layer], expected[layer])
        torch.testing.assert_close(cast[layer], expected[layer], rtol=0.2, atol=0.05)

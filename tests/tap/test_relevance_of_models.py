"""Relevance leaves the model as it was, and names what it has no rule for."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import neuralcov as nc
from neuralcov.tap import Batch, Tap
from tests.tap.relevance_support import Residual, explain, images, seeded, vectors

# The model, before and after


def everything(net):
    return (
        {name: value.clone() for name, value in net.state_dict().items()},
        [module.training for module in net.modules()],
        [(p.requires_grad, None if p.grad is None else p.grad.clone()) for p in net.parameters()],
        [sorted(module.__dict__) for module in net.modules()],
        [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in net.modules()],
        [id(module) for module in net.modules()],
        [id(value) for value in (*net.parameters(), *net.buffers())],
    )


def assert_same(one, other):
    assert one[1] == other[1]
    assert one[3:] == other[3:]
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0])
    for (flag, grad), (flag_after, grad_after) in zip(one[2], other[2], strict=True):
        assert flag == flag_after
        assert (grad is None) == (grad_after is None)
        assert grad is None or torch.equal(grad, grad_after)


def test_the_model_is_left_as_it_was():
    net, inputs = seeded(Residual, torch.float32), images(dtype=torch.float32)
    net(inputs).sum().backward()
    net.train()
    net.layer1.bn1.eval()
    net.layer2.conv1.weight.requires_grad_(False)
    before = everything(net)
    state = torch.get_rng_state()
    with torch.enable_grad():
        explain(net, inputs)
    assert_same(before, everything(net))
    assert torch.equal(torch.get_rng_state(), state)
    net.layer2.downsample = nn.Sequential(nn.Conv2d(4, 8, 1, 2), nn.Softmax(1))
    before = everything(net)
    with pytest.raises(nc.NeuralcovError, match="Softmax"):
        explain(net, inputs)
    assert_same(before, everything(net))


def test_activations_and_output_are_those_of_a_plain_run():
    net, inputs = seeded(Residual, torch.float32), images(dtype=torch.float32)
    plain, output = Tap(net).run(Batch(inputs), predictions=True)
    batch, again = Tap(net).run(Batch(inputs), relevance=True)
    assert torch.equal(again, output)
    assert torch.equal(batch.predictions, plain.predictions)
    assert list(batch.relevance) == list(batch.layers) == list(plain.layers)
    for layer, values in plain.layers.items():
        assert torch.equal(batch.layers[layer], values)
        assert batch.relevance[layer].shape == values.shape
        assert not batch.relevance[layer].requires_grad
    assert plain.relevance is None


def test_the_forward_pass_runs_once():
    net, calls = seeded(Residual), []
    net.register_forward_hook(lambda *_: calls.append("net"))
    net.layer1.conv1.register_forward_hook(lambda *_: calls.append("conv"))
    tap = Tap(net)
    tap.run(Batch(images()), relevance=True)
    assert calls == ["conv", "net"] * 3  # after two runs of the probe
    tap.run(Batch(images()), relevance=True)
    assert calls == ["conv", "net"] * 4


def test_weights_that_change_are_followed():
    net, inputs = seeded(Residual), images()
    tap = Tap(net)
    tap.run(Batch(inputs), relevance=True)
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            if tensor.is_floating_point():
                tensor.mul_(1.3)
        net.conv1.weight.data = net.conv1.weight.data.roll(1, 0)
    net.fc = nn.Linear(8, 3).double()
    with pytest.raises(nc.NeuralcovError, match="'fc' did not run"):
        tap.run(Batch(inputs), relevance=True)
    tap = Tap(net)
    again, _ = tap.run(Batch(inputs), relevance=True)
    expected, _ = explain(copy.deepcopy(net), inputs)
    for layer in expected:
        assert torch.equal(again.relevance[layer], expected[layer])


def test_only_the_chosen_layers():
    net, inputs = seeded(Residual), images()
    everywhere, _ = explain(net, inputs)
    some, _ = explain(net, inputs, layers="layer1.*|fc")
    assert list(some) == ["layer1.conv1", "layer1.conv2", "fc"]
    for layer, values in some.items():
        torch.testing.assert_close(values, everywhere[layer])


def test_containers_and_other_modules_as_layers():
    net, inputs = seeded(Residual), images()
    relevance, output = explain(net, inputs, layers=["layer1", "layer2.relu", "pool", "conv1"])
    # Called twice in a forward pass: behind the first convolution, and behind the sum.
    assert list(relevance) == ["conv1", "layer1", "layer2.relu", "layer2.relu#1", "pool"]
    torch.testing.assert_close(relevance["pool"].sum(1), output.max(1).values, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(relevance["layer2.relu#1"], relevance["pool"], rtol=1e-6, atol=1e-6)


# What cannot be followed


class Through(nn.Module):
    """A layer, something, and a layer."""

    def __init__(self, something):
        super().__init__()
        self.first, self.something, self.last = nn.Linear(5, 4), something, nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.something(self.first(x)))


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def set_item(x):
    y = torch.zeros_like(x)
    y[:, :2] = x[:, 2:]
    return y


@pytest.mark.parametrize(
    ("something", "message"),
    [
        (nn.Softmax(1), r"through module 'something' \(Softmax\): there is no rule for 'softmax'"),
        (nn.Sequential(nn.Linear(4, 8), nn.GLU(1)), r"module 'something.1' \(GLU\): there is no rule for 'glu'"),
        (Calls(lambda x: x @ x.mT @ x), r"module 'something' \(Calls\): there is no rule for 'matmul' of several"),
        (Calls(lambda x: 1 / x), r"module 'something' \(Calls\): there is no rule for '__rdiv__'"),
        (Calls(lambda x: torch.div(1, x)), "no rule for 'div' by something computed from the input"),
        (Calls(lambda x: x / x.norm()), r"no rule for 'div' of several"),
        (Calls(set_item), "no rule for '__setitem__'"),
        (Calls(lambda x: functional.linear(x, x[:4])), "no rule for 'linear' of several"),
        (Calls(lambda x: torch.add(x, x, out=torch.empty_like(x))), "no rule for 'add with out='"),
        (Calls(lambda x: torch.batch_norm(x, None, None, x[0], x[0].abs(), False, 0.1, 1e-5, False)), "'batch_norm'"),
        (Calls(torch.erf), r"module 'something' \(Calls\): there is no rule for 'erf'; leave NPC out"),
    ],
)
def test_what_has_no_rule_is_named(something, message):
    net = Through(something).double().eval()
    with pytest.raises(nc.NeuralcovError, match=message):
        explain(net, vectors())
    # Choosing the layers behind it helps.
    relevance, _ = explain(net, vectors(), layers="last")
    assert list(relevance) == ["last"]


def test_recurrent_layers_are_refused():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(self.lstm(x)[0][:, -1])

    with pytest.raises(nc.NeuralcovError, match=r"layer 'lstm' is recurrent \(LSTM\).*layers='!lstm'"):
        explain(Recurrent(), torch.randn(2, 5, 3))
    relevance, _ = explain(Recurrent(), torch.randn(2, 5, 3), layers="!lstm")
    assert list(relevance) == ["fc"]


def test_layers_that_relevance_does_not_reach_are_named():
    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.aside, self.b = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            x = self.a(x)
            self.aside(x)
            return self.b(x)

    with pytest.raises(nc.NeuralcovError, match=r"no relevance reaches layer 'aside'.*layers='!aside'"):
        explain(Aside().double(), vectors())
    away = Calls(lambda x: torch.from_numpy(x.detach().numpy() * 2))
    with pytest.raises(nc.NeuralcovError, match="no relevance reaches layer 'first'"):
        explain(Through(away).double(), vectors())
    with pytest.raises(nc.NeuralcovError, match="no relevance reaches any layer"):
        explain(nn.Sequential(nn.Linear(5, 3), away).double(), vectors())

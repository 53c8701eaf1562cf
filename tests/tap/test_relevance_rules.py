"""Every rule: against NumPy, against captum's own pass, against the same network written differently or folded."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

import neuralcov as nc
from neuralcov.tap import Batch, Tap
from neuralcov.tap import relevance_rules as rules
from tests.tap.lrp import (
    alpha1_beta0_rule,
    by_feature,
    convolution_matrix,
    epsilon_rule,
    fold,
    linear_matrix,
    max_pool,
    unpool,
)
from tests.tap.relevance_support import Plain, Residual, explain, images, seeded, vectors


def plain_by_hand(net, x, activation):
    """Every layer's relevance of one input."""
    act = lambda a: activation(torch.from_numpy(a)).numpy()  # noqa: E731
    c1, b1, s1 = convolution_matrix(net.conv1, tuple(x.shape))
    h1 = c1 @ x.numpy().ravel() + b1
    pooled, winners, p1 = max_pool(act(h1), s1)
    c2, b2, s2 = convolution_matrix(net.conv2, p1)
    h2 = c2 @ pooled + b2
    (f1, d1), (f2, d2) = linear_matrix(net.fc1), linear_matrix(net.fc2)
    h3 = f1 @ act(h2) + d1
    h4 = f2 @ act(h3) + d2
    r4 = np.where(np.arange(3) == h4.argmax(), h4, 0)
    r3 = epsilon_rule(act(h3), f2, d2, r4)
    r2 = epsilon_rule(act(h2), f1, d1, r3)
    r1 = unpool(alpha1_beta0_rule(pooled, c2, b2, r2), winners, h1.size)
    return {"conv1": by_feature(r1, s1), "conv2": by_feature(r2, s2), "fc1": r3, "fc2": r4}


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(
    "activation", [functional.relu, functional.gelu, functional.leaky_relu, torch.tanh, functional.hardswish]
)
def test_a_plain_network_equals_numpy(activation, biases):
    """With all but ReLU, the second convolution sees negative inputs as well."""
    net = seeded(lambda: Plain(activation), biases=biases)
    inputs = images()
    found, _ = explain(net, inputs)
    for i, x in enumerate(inputs):
        for layer, expected in plain_by_hand(net, x, activation).items():
            np.testing.assert_allclose(found[layer][i], expected, rtol=1e-9, atol=1e-9)


def residual_by_hand(net, x):
    found = {}
    m, b, shape = convolution_matrix(net.conv1, tuple(x.shape))
    m, b = fold(m, b, net.bn1)
    a = np.maximum(m @ x.numpy().ravel() + b, 0)
    stem, kept = shape, []
    for block in (net.layer1, net.layer2):
        m1, b1, s1 = convolution_matrix(block.conv1, shape)
        m1, b1 = fold(m1, b1, block.bn1)
        inner = np.maximum(m1 @ a + b1, 0)
        m2, b2, s2 = convolution_matrix(block.conv2, s1)
        m2, b2 = fold(m2, b2, block.bn2)
        summand, short = m2 @ inner + b2, None
        if block.downsample is not None:
            ms, bs, _ = convolution_matrix(block.downsample[0], shape)
            short = fold(ms, bs, block.downsample[1])
        other = a if short is None else short[0] @ a + short[1]
        kept.append((a, inner, summand, other, (m1, b1), (m2, b2), short, s1, s2))
        a, shape = np.maximum(summand + other, 0), s2
    pool = np.kron(np.eye(shape[0]), np.ones(shape[1] * shape[2]) / (shape[1] * shape[2]))
    f, d = linear_matrix(net.fc)
    logits = f @ (pool @ a) + d
    relevance = found["fc"] = np.where(np.arange(3) == logits.argmax(), logits, 0)
    relevance = epsilon_rule(pool @ a, f, d, relevance)
    relevance = epsilon_rule(a, pool, np.zeros(shape[0]), relevance)
    for name, (a, inner, summand, other, one, two, short, s1, s2) in zip(
        ("layer2", "layer1"), reversed(kept), strict=True
    ):
        both = np.eye(a.size if short is None else summand.size)
        relevance = epsilon_rule(
            np.concatenate([summand, other]), np.hstack([both, both]), np.zeros(len(both)), relevance
        )
        r_summand, r_other = np.split(relevance, 2)
        found[f"{name}.conv2"] = by_feature(r_summand, s2)
        r_inner = alpha1_beta0_rule(inner, *two, r_summand)
        found[f"{name}.conv1"] = by_feature(r_inner, s1)
        relevance = alpha1_beta0_rule(a, *one, r_inner)
        if short is None:
            relevance = relevance + r_other
        else:
            found[f"{name}.downsample.0"] = by_feature(r_other, s2)
            relevance = relevance + alpha1_beta0_rule(a, *short, r_other)
    found["conv1"] = by_feature(relevance, stem)
    return found


@pytest.mark.parametrize("biases", [True, False])
def test_a_residual_network_with_batch_norm_equals_numpy(biases):
    net, inputs = seeded(Residual, biases=biases), images()
    found, _ = explain(net, inputs)
    assert set(found) == {*residual_by_hand(net, inputs[0])}
    for i, x in enumerate(inputs):
        for layer, expected in residual_by_hand(net, x).items():
            np.testing.assert_allclose(found[layer][i], expected, rtol=1e-8, atol=1e-8)


# Against captum's own pass


def test_equals_captums_own_pass_where_that_is_sound():
    """A chain of layers with biases that are not negative, on inputs that are not."""
    from captum.attr import LayerLRP
    from captum.attr._utils.lrp_rules import Alpha1_Beta0_Rule, EpsilonRule

    net = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 5, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(5, 6),
            nn.ReLU(),
            nn.Linear(6, 3),
        )
    )
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.bias.data.abs_()
    inputs = images().abs()
    found, output = explain(net, inputs)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.rule = Alpha1_Beta0_Rule()
        elif isinstance(module, (nn.Linear, nn.Flatten, nn.MaxPool2d)):
            module.rule = EpsilonRule()
    layers = [net[0], net[3], net[6], net[8]]
    theirs = LayerLRP(net, layers).attribute(inputs.requires_grad_(), target=output.argmax(1))
    for layer, values in zip(("0", "3", "6", "8"), theirs, strict=True):
        expected = values.detach().flatten(2).sum(2) if values.dim() > 2 else values.detach()
        torch.testing.assert_close(found[layer], expected, rtol=1e-5, atol=1e-6)


# Folding


@pytest.mark.parametrize("shared", [False, True])
def test_batch_norm_is_folded_into_the_layer_before(shared):
    net = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 6, 3, groups=2),
            nn.BatchNorm2d(6),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(24, 5),
            nn.BatchNorm1d(5),
            nn.ReLU(),
            nn.Linear(5, 3),
        )
    )
    fused = nn.Sequential(
        fuse_conv_bn_eval(net[0], net[1]),
        net[2],
        fuse_conv_bn_eval(net[3], net[4]),
        net[5],
        net[6],
        fuse_linear_bn_eval(net[7], net[8]),
        net[9],
        net[10],
    )
    inputs = images()
    found, _ = explain(net, inputs, layers=["0", "3", "7", "10"] if not shared else None)
    expected, _ = explain(fused, inputs)
    for ours, theirs in zip(("0", "3", "7", "10"), ("0", "2", "5", "7"), strict=True):
        torch.testing.assert_close(found[ours], expected[theirs], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_is_folded_into_a_transposed_convolution(groups):
    net = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.ReLU(),
            nn.ConvTranspose2d(4, 6, 2, stride=2, groups=groups),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 3),
        )
    )
    scale = net[3].weight / (net[3].running_var + net[3].eps).sqrt()
    folded = copy.deepcopy(net)
    folded[3] = nn.Identity()
    apart = net[2].weight.detach().reshape(groups, 4 // groups, 6 // groups, 2, 2)
    folded[2].weight.data = (apart * scale.reshape(groups, 1, -1, 1, 1)).reshape(net[2].weight.shape)
    folded[2].bias.data = (net[2].bias - net[3].running_mean) * scale + net[3].bias
    inputs = images()
    (found, first), (expected, second) = explain(net, inputs), explain(folded, inputs)
    torch.testing.assert_close(first, second)
    for layer in expected:
        torch.testing.assert_close(found[layer], expected[layer], rtol=1e-6, atol=1e-8)


def test_one_layer_behind_which_two_batch_norms_stand():
    class Forks(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.fc = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 5, 3), nn.Linear(5, 3)
            self.one, self.two = nn.BatchNorm2d(5), nn.BatchNorm2d(5)

        def forward(self, x):
            x = self.b(torch.relu(self.a(x)))
            return self.fc((torch.relu(self.one(x)) + torch.relu(self.two(x)) + torch.relu(x)).mean((2, 3)))

    class Apart(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.a, self.fc = net.a, net.fc
            self.b1, self.b2 = fuse_conv_bn_eval(net.b, net.one), fuse_conv_bn_eval(net.b, net.two)
            self.b3 = net.b

        def forward(self, x):
            x = torch.relu(self.a(x))
            return self.fc((torch.relu(self.b1(x)) + torch.relu(self.b2(x)) + torch.relu(self.b3(x))).mean((2, 3)))

    net, inputs = seeded(Forks), images()
    found, _ = explain(net, inputs)
    expected, _ = explain(Apart(net).eval(), inputs)
    torch.testing.assert_close(found["a"], expected["a"], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found["b"], expected["b1"] + expected["b2"] + expected["b3"], rtol=1e-6, atol=1e-8)


def test_batch_norm_behind_an_activation_is_not_folded():
    for relu in (nn.ReLU(), nn.ReLU(inplace=True)):
        net = seeded(lambda r=relu: nn.Sequential(nn.Linear(5, 6), r, nn.BatchNorm1d(6), nn.Linear(6, 3)))
        inputs = vectors()
        found, output = explain(net, inputs)
        a = torch.relu(net[0](inputs)).detach()
        norm = net[2](a).detach()
        logit, chosen = output.max(1)
        scale = (net[2].weight / (net[2].running_var + net[2].eps).sqrt()).detach()
        # Contribution of each hidden neuron to the norm's output, times that of the norm's output to the logit.
        expected = a * scale / norm * (norm * net[3].weight.detach()[chosen])
        torch.testing.assert_close(found["0"], expected, rtol=1e-5, atol=1e-8)
        assert logit.isfinite().all()


def test_batch_norm_that_mixes_the_batch_is_refused():
    net = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).train()
    inputs = vectors(dtype=torch.float32)
    with pytest.raises(nc.NeuralcovError, match=r"module '1' \(BatchNorm1d\) takes the statistics of each batch"):
        explain(net, inputs, mode="keep")
    explain(net, inputs)
    net[1] = nn.BatchNorm1d(6, track_running_stats=False)
    in_place = {"rows": lambda layer, output: range(len(output))}  # outputs that move with the batch show no order
    with pytest.raises(nc.NeuralcovError, match="takes the statistics of each batch"):
        explain(net, inputs, **in_place)


# The table


def test_every_name_is_one_of_torchs():
    places = (torch, functional, Tensor)
    assert [name for name in rules.RULES if not any(hasattr(place, name) for place in places)] == []


def test_captums_rules_are_themselves_left_alone():
    """Their hooks keep relevance in the class unless told otherwise."""
    from captum.attr._utils.lrp_rules import PropagationRule

    Tap(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(8, 3))).run(
        Batch(torch.randn(2, 1, 6, 6)), relevance=True
    )
    assert PropagationRule.relevance_input == {}
    assert PropagationRule.relevance_output == {}


def test_endings_keep_their_values():
    assert not rules.ENDINGS & rules.VALUELESS

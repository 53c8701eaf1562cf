import copy
import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

import neuralcov as nc
from neuralcov.tap import Batch, Tap, rules
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


def explain(model, inputs, **options):
    """Relevance of every layer, and the model's output."""
    batch, output = Tap(model, **options).run(Batch(inputs), relevance=True)
    return batch.relevance, output


def seeded(build, dtype=torch.float64, biases=True):
    """A network with random weights, batch norms with random statistics, and biases of both signs or none."""
    torch.manual_seed(0)
    net = build()
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.running_mean, 0, 0.3 if biases else 0)
            nn.init.normal_(module.weight, 0.5, 0.7)
            nn.init.normal_(module.bias, 0, 0.3 if biases else 0)
        elif isinstance(getattr(module, "bias", None), torch.Tensor):
            nn.init.normal_(module.bias, 0, 0.2 if biases else 0)
    return net.to(dtype).eval()


def images(size=5, channels=2, side=6, dtype=torch.float64):
    return torch.randn(size, channels, side, side, generator=torch.Generator().manual_seed(1), dtype=dtype)


def vectors(size=6, width=5, dtype=torch.float64):
    return torch.randn(size, width, generator=torch.Generator().manual_seed(1), dtype=dtype)


class Plain(nn.Module):
    """A plain CNN, activations and pooling as functions."""

    def __init__(self, activation=functional.relu):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 5, 2, stride=1, padding=1)
        self.fc1, self.fc2 = nn.Linear(5 * 4 * 4, 6), nn.Linear(6, 3)
        self.activation = activation

    def forward(self, x):
        x = functional.max_pool2d(self.activation(self.conv1(x)), 2)
        x = self.activation(self.conv2(x)).flatten(1)
        return self.fc2(self.activation(self.fc1(x)))


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


def test_float32_agrees_with_float64():
    net, inputs = seeded(Plain), images(20)
    double, _ = explain(net, inputs)
    single, _ = explain(copy.deepcopy(net).float(), inputs.float())
    for layer in double:
        assert single[layer].dtype == torch.float32
        torch.testing.assert_close(single[layer].double(), double[layer], rtol=1e-3, atol=1e-5)


class Block(nn.Module):
    """ResNet's basic block, with a downsampling shortcut where shapes change, activations and sums in place."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class Residual(nn.Module):
    def __init__(self, inputs=2, width=4):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu, self.pool = nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1)
        self.layer1, self.layer2 = Block(width, width), Block(width, 2 * width, 2)
        self.fc = nn.Linear(2 * width, 3, bias=False)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        return self.fc(torch.flatten(self.pool(self.layer2(self.layer1(x))), 1))


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


# Conservation


def totals(relevance):
    return {layer: values.sum(1) for layer, values in relevance.items()}


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


# One and the same however it is written


class Written(nn.Module):
    """Two convolutions and a sum, with one detail written differently."""

    def __init__(self, add=lambda x, y: x + y, activation=functional.relu, end=None):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3)
        self.fc = nn.Linear(16, 3)
        self.add, self.activation = add, activation
        self.end = end or (lambda x: torch.flatten(x, 1))

    def forward(self, x):
        x = self.activation(self.a(x))
        x = self.activation(self.add(self.b(x), x))
        return self.fc(self.end(self.c(x)))


def iadd(x, y):
    x += y
    return x


def unused_result(x):
    x.relu_()
    return x


SUMS = [torch.add, iadd, lambda x, y: x.add_(y), lambda x, y: y + x, lambda x, y: torch.stack([x, y]).sum(0)]
RELUS = [
    nn.ReLU(),
    nn.ReLU(inplace=True),
    torch.relu,
    torch.relu_,
    unused_result,
    lambda x: functional.relu(x, True),
    lambda x: functional.relu(input=x, inplace=True),
    lambda x: x.clamp(min=0),
    lambda x: torch.where(x > 0, x, 0.0),
    lambda x: torch.maximum(x, torch.zeros_like(x)),
]
ENDS = [
    nn.Flatten(),
    lambda x: x.view(x.size(0), -1),
    lambda x: x.reshape(len(x), -1),
    lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).flatten(1),
    lambda x: torch.cat([x[:, :2], x[:, 2:]], 1).flatten(1),
    lambda x: torch.cat(x.chunk(2, 1), 1).flatten(1),
    lambda x: functional.dropout(x, 0.5, False).flatten(1),
    lambda x: functional.max_pool2d(x.double(), 1).flatten(1),
    lambda x: functional.adaptive_avg_pool2d(x, 2).flatten(1),
    lambda x: functional.pad(x, (1, 1))[..., 1:-1].squeeze().flatten(1),
    lambda x: (x * 2 / 2).mT.mT.flatten(1),
    lambda x: nn.Sequential(nn.Identity(), nn.Dropout(0.5), nn.Flatten()).eval()(x),
    lambda x: torch.stack(x.unbind(1), 1).flatten(1),
]


@pytest.mark.parametrize(
    "changes",
    [{"add": add} for add in SUMS] + [{"activation": relu} for relu in RELUS] + [{"end": end} for end in ENDS],
)
def test_the_way_it_is_written_does_not_matter(changes):
    inputs = images()
    expected, output = explain(seeded(Written), inputs)
    found, again = explain(seeded(lambda: Written(**changes)), inputs)
    torch.testing.assert_close(again, output)
    for layer in expected:
        torch.testing.assert_close(found[layer], expected[layer], rtol=1e-7, atol=1e-9)


def test_values_that_are_overwritten_later_are_kept():
    """The sum needs its first summand as it was before it became the sum, and both before the ReLU."""

    class Overwrites(nn.Module):
        def __init__(self, careful):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)
            self.careful = careful

        def forward(self, x):
            x = self.a(x)
            y = self.b(x)
            s = x + y
            if self.careful:
                return self.c(torch.relu(s) + torch.relu(x) + torch.relu(y))
            x.relu_()
            view = y.view(-1)
            view.relu_()
            s.relu_()
            s += x
            return self.c(s.add_(y))

    inputs = vectors()
    (expected, first), (found, second) = (explain(seeded(lambda c=c: Overwrites(c)), inputs) for c in (True, False))
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(found["a"], expected["a"])


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
    with pytest.raises(nc.NeuralcovError, match="takes the statistics of each batch"):
        explain(net, inputs)


# Modules


def between(module, channels=4, side=6):
    """A network with ``module`` between two convolutions, without biases."""
    torch.manual_seed(0)
    first = nn.Conv2d(2, 4, 3, padding=1, bias=False)
    with torch.no_grad():
        shape = module(torch.zeros(1, 4, side, side, dtype=torch.float64)).shape
    head = nn.Linear(int(np.prod(shape[1:])), 3, bias=False)
    return nn.Sequential(first, module, nn.Flatten(), head).double().eval()


CONSERVING = [
    nn.ReLU6(),
    nn.LeakyReLU(),
    nn.PReLU().double(),
    nn.RReLU(),
    nn.ELU(),
    nn.SELU(),
    nn.CELU(),
    nn.GELU(),
    nn.SiLU(),
    nn.Mish(),
    nn.Hardswish(),
    nn.Hardtanh(),
    nn.Tanh(),
    nn.Tanhshrink(),
    nn.Softsign(),
    nn.Softshrink(),
    nn.Hardshrink(),
    nn.Threshold(0.1, 0.0),
    nn.Sigmoid(),
    nn.Hardsigmoid(),
    nn.Softplus(),
    nn.Dropout(),
    nn.Dropout2d(),
    nn.AlphaDropout(),
    nn.Identity(),
    nn.MaxPool2d(2),
    nn.MaxPool2d(3, 1, 1),
    nn.AdaptiveMaxPool2d(2),
    nn.AvgPool2d(2),
    nn.AvgPool2d(3, 1, 1),
    nn.AdaptiveAvgPool2d(2),
    nn.AdaptiveAvgPool2d((1, 3)),
    nn.Upsample(scale_factor=2),
    nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.ZeroPad2d(1),
    nn.ReflectionPad2d(1),
    nn.PixelShuffle(2),
    nn.PixelUnshuffle(2),
    nn.ChannelShuffle(2),
    nn.Unflatten(1, (2, 2)),
    nn.LocalResponseNorm(2),
    nn.GroupNorm(2, 4).double(),
    nn.LayerNorm([4, 6, 6]).double(),
    nn.LayerNorm(6).double(),
    nn.RMSNorm(6).double(),
    nn.Linear(6, 5, bias=False).double(),
]


@pytest.mark.parametrize("module", CONSERVING, ids=repr)
def test_modules_conserve_relevance(module):
    net = between(module)
    relevance, output = explain(net, images(10), layers=["0", "3"])
    torch.testing.assert_close(relevance["0"].sum(1), output.max(1).values, rtol=1e-5, atol=1e-6)


class Conv1dNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(2, 4, 3, bias=False), nn.Conv1d(4, 3, 2, bias=False)

    def forward(self, x):
        return functional.max_pool1d(self.b(functional.avg_pool1d(torch.relu(self.a(x)), 2)), 2).amax(2)


class Conv3dNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv3d(2, 4, 2, bias=False), nn.Conv3d(4, 3, 2, bias=False)

    def forward(self, x):
        x = functional.avg_pool3d(torch.relu(self.a(x)), 2, 1)
        return functional.adaptive_avg_pool3d(torch.relu(self.b(functional.max_pool3d(x, 1))), 1).flatten(1)


@pytest.mark.parametrize(("build", "shape"), [(Conv1dNet, (2, 12)), (Conv3dNet, (2, 5, 5, 5))])
def test_convolutions_of_other_ranks(build, shape):
    net = seeded(build, biases=False)
    inputs = torch.randn(8, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    relevance, output = explain(net, inputs)
    positive = output.max(1).values > 0
    logit = output.max(1).values[positive]
    assert positive.any()
    torch.testing.assert_close(relevance["a"].sum(1)[positive], logit, rtol=1e-5, atol=1e-6)


def test_modern_blocks():
    """Squeeze and excitation, layer scale, depthwise convolutions, hand-written swish: conserved all the same."""

    class Modern(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.depth = nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False)
            self.squeeze, self.excite = nn.Conv2d(4, 2, 1, bias=False), nn.Conv2d(2, 4, 1, bias=False)
            self.scale, self.norm = nn.Parameter(torch.randn(4)), nn.LayerNorm(4)
            self.head = nn.Linear(4, 3, bias=False)

        def forward(self, x):
            x = self.stem(x)
            x = x * torch.sigmoid(x)
            y = self.depth(x)
            y = y * torch.sigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
            y = self.norm(y.permute(0, 2, 3, 1)) * self.scale
            return self.head((x.permute(0, 2, 3, 1) + y).mean((1, 2)))

    batch, output = Tap(seeded(Modern, biases=False)).run(Batch(images(30)), relevance=True)
    total, logit = totals(batch.relevance), output.max(1).values
    # Behind a squeeze that lets nothing through, the gate is a constant, whose part relevance ends in.
    alive = (batch.layers["squeeze"] > 0).any(1)
    assert 5 < alive.sum() < 30
    torch.testing.assert_close(total["stem"][alive], logit[alive], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(total["excite"][alive], total["squeeze"][alive], rtol=1e-5, atol=1e-5)
    assert not total["squeeze"][~alive].any()


def test_a_layer_called_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(torch.relu(self.fc(torch.relu(self.fc(x)))))

    net = seeded(Twice)
    same = nn.Sequential(net.fc, nn.ReLU(), copy.deepcopy(net.fc), nn.ReLU(), net.head)
    inputs = vectors()
    found, _ = explain(net, inputs)
    expected, _ = explain(same, inputs)
    assert list(found) == ["fc", "fc#1", "head"]
    torch.testing.assert_close(found["fc"], expected["0"])
    torch.testing.assert_close(found["fc#1"], expected["2"])


def test_one_layer_alone():
    net = nn.Linear(4, 3).double()
    relevance, output = explain(net, vectors(width=4))
    logit, chosen = output.max(1)
    assert torch.equal(relevance["Linear"], torch.zeros_like(output).scatter_(1, chosen[:, None], logit[:, None]))


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
    explain(net, images())
    assert calls == ["conv", "net"]


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


# Captum


def test_without_captum_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr._utils.lrp_rules", None)
    rules.captum_rules.cache_clear()
    coverage = nc.Coverage(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), [nc.NPC()])
    with pytest.raises(nc.NeuralcovError, match=r"relevance needs captum: .* pip install 'neuralcov\[paths\]'"):
        coverage.calibrate([(vectors(dtype=torch.float32), torch.zeros(6).long())], progress=False)
    rules.captum_rules.cache_clear()


def test_captum_is_imported_only_where_it_is_needed():
    script = """
import sys, torch, neuralcov as nc
coverage = nc.Coverage(torch.nn.Linear(3, 2), [nc.NC(), nc.TKNC(1)])
coverage.update(torch.randn(4, 3))
assert "captum" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)

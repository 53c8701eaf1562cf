"""Functions and modules that relevance passes through: however they are written, and what they conserve."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from neuralcov.tap import Batch, Tap
from tests.tap.relevance_support import explain, images, seeded, totals, vectors

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

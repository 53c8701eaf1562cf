"""Networks with random weights, and one way to explain them, for tests of relevance."""

import torch
from torch import nn
from torch.nn import functional

from neuralcov.tap import Batch, Tap


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


def totals(relevance):
    return {layer: values.sum(1) for layer, values in relevance.items()}


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

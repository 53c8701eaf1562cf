"""Try the limits of sanity alarms on real networks: honest suites, and suites that were broken on purpose.

    python -m benchmarks.sanity_limits resnet50 --weights resnet50-cifar10.safetensors --device cuda -o sanity.json
    python -m benchmarks.sanity_limits convnet --data fashion-mnist --epochs 3 -o sanity.json

Every suite has the same network and calibration. Beside the figures of ``cov.sanity()`` and LCC's stands the share of
inputs that two of DSC, LSC and MDSC, on the last layer before the output, place beyond 99 % of held-out inputs.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import neuralcov as nc
from neuralcov_lab import zoo

Suite = tuple[str, Tensor, Tensor]
_BEYOND, _AGREE = 0.99, 2


def suites(test: zoo.Samples, inputs: int, random: torch.Generator) -> Iterator[Suite]:
    """Yield suites by name: pixels as the network gets them, and labels."""
    for block in range(min(4, len(test) // inputs)):
        rows = torch.arange(block * inputs, (block + 1) * inputs)
        yield f"test {block + 1}", test.prepare(test.pixels(rows)), test.labels[rows]
    whole = torch.arange(min(inputs, len(test)))
    pixels, labels = test.pixels(whole), test.labels[whole]
    ready = test.prepare(pixels)
    yield "100 inputs", ready[:100], labels[:100]
    yield "bytes, not scaled", pixels * test.levels, labels
    if test.mean:
        yield "not normalised", pixels, labels
        yield "another data set's normalisation", (ready * 0.5 + 0.2), labels
    yield "[-1, 1] for [0, 1]", test.prepare(2 * pixels - 1), labels
    if pixels.shape[1] == 3:
        yield "colours swapped", test.prepare(pixels.flip(1)), labels
        yield "grey", test.prepare(pixels.mean(1, keepdim=True).expand_as(pixels)), labels
    yield "inverted", test.prepare(1 - pixels), labels
    yield "rows for columns", test.prepare(pixels.transpose(2, 3)), labels
    yield "upside down", test.prepare(pixels.flip(2)), labels
    yield "mirrored", test.prepare(pixels.flip(3)), labels
    yield "darkened to a quarter", test.prepare(pixels / 4), labels
    yield "uniform noise", test.prepare(torch.rand(pixels.shape, generator=random)), labels
    blurred = nn.functional.avg_pool2d(nn.functional.pad(pixels, (2, 2, 2, 2), mode="replicate"), 5, 1)
    yield "blurred", test.prepare(blurred), labels
    half, one = labels < int(labels.max() + 1) // 2, labels == 3
    yield "half the classes", ready[half], labels[half]
    yield "one class", ready[one], labels[one]
    few = torch.arange(len(whole) // 2).repeat(2)
    yield "each twice", ready[few], labels[few]
    tenth = torch.arange(len(whole) // 10).repeat(10)
    yield "a tenth, ten times", ready[tenth], labels[tenth]
    seeds = torch.arange(50).repeat(len(whole) // 50)
    noise = 0.05 * torch.randn(pixels[seeds].shape, generator=random)
    yield "noisy copies of 50", test.prepare((pixels[seeds] + noise).clamp(0, 1)), labels[seeds]
    yield "labels shuffled", ready, labels[torch.randperm(len(labels), generator=random)]


def measure(net: nn.Module, train: zoo.Samples, test: zoo.Samples, inputs: int, device: str) -> dict[str, Any]:
    """Return the figures of every suite."""
    layer = list(_layers(net, test))[-2]
    score = {"layers": layer, "traces": 20_000}
    criteria = [nc.LCC(), nc.DSC(0.1, **score), nc.LSC(10, **score), nc.MDSC(10, layers=layer)]
    cov = nc.Coverage(net, criteria, device=device)
    count = min(1000, len(train) // 4)
    held, rest = train.prepare(train.pixels(slice(0, count))), train.take(slice(count, len(train)))
    begun = time.perf_counter()
    cov.calibrate(rest.batches(500), progress=False)
    took = time.perf_counter() - begun
    limits = {name: torch.quantile(found.double(), _BEYOND) for name, found in _scores(cov, held).items()}
    found: dict[str, Any] = {}
    random = torch.Generator().manual_seed(0)
    for name, pixels, labels in suites(test, inputs, random):
        found[name] = _figures(cov, pixels, labels, limits)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    torch.manual_seed(1)
    net.load_state_dict({name: _shuffled(value) for name, value in state.items()})
    wrong = nc.Coverage(net, criteria, device=device)
    wrong.calibrate(rest.take(slice(0, 5000)).batches(500), progress=False)
    far = {name: torch.quantile(some.double(), _BEYOND) for name, some in _scores(wrong, held).items()}
    rows = torch.arange(min(inputs, len(test)))
    found["weights shuffled"] = _figures(wrong, test.prepare(test.pixels(rows)), test.labels[rows], far)
    net.load_state_dict(state)
    return {"training": len(rest), "calibration_seconds": took, "suites": found}


def _shuffled(value: Tensor) -> Tensor:
    return value.flatten()[torch.randperm(value.numel())].view_as(value) if value.ndim > 1 else value


def _layers(net: nn.Module, test: zoo.Samples) -> Iterator[str]:
    cov = nc.Coverage(net, [nc.NC(0.75)])
    cov.update(test.prepare(test.pixels(slice(0, 4))))
    yield from (row.layer for row in cov.by_layer())


def _scores(cov: nc.Coverage, pixels: Tensor) -> dict[str, Tensor]:
    parts = [cov.scores(batch) for batch in pixels.split(500)]
    return {name: torch.cat([part[name].cpu() for part in parts]) for name in parts[0]}


def _figures(cov: nc.Coverage, pixels: Tensor, labels: Tensor, limits: dict[str, Tensor]) -> dict[str, Any]:
    scores = _scores(cov, pixels)
    beyond = torch.stack([~(scores[name].double() <= limit) for name, limit in limits.items()]).sum(0) >= _AGREE
    cov.reset()
    cov.assess(list(zip(pixels.split(500), labels.split(500), strict=True)), progress=False)
    sane, details = cov.sanity(), cov.details()["LCC"]
    return {
        "inputs": len(pixels),
        "accuracy": sane.accuracy,
        "off_map": sane.unlike,
        "off_map_expected": sane.unlike_expected,
        "off_map_worst": sane.unlike_worst,
        "off_map_worst_expected": sane.unlike_worst_expected,
        "relative": details.get("relative"),
        "relative_error": details.get("relative_error"),
        "new_decisions": details.get("new_decisions"),
        "duplicates": sane.duplicates,
        "near_duplicates": sane.near_duplicates,
        "two_of_three": float(beyond.double().mean()),
        "alarms": [alarm.name for alarm in sane.alarms],
    }


def train_here(net: nn.Module, train: zoo.Samples, epochs: int, seed: int) -> None:
    """Train a small network, quickly."""
    torch.manual_seed(seed)
    steps = torch.optim.Adam(net.parameters(), lr=1e-3)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(train)).split(128):
            steps.zero_grad()
            nn.functional.cross_entropy(net(train.prepare(train.pixels(rows))), train.labels[rows]).backward()
            steps.step()
    net.eval()


def main() -> None:
    """Measure one network and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--training", type=int, default=51_000)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    train, test = zoo.data(given.data, "train"), zoo.data(given.data, "test")
    train = train.take(torch.randperm(len(train))[: given.training])
    test = test.take(torch.randperm(len(test)))
    net = zoo.build(given.network, **zoo.arguments_for(given.network, train)).eval()
    if given.weights is not None:
        net.load_state_dict({name: value.float() for name, value in load_file(given.weights).items()}, strict=False)
    elif given.network != "digits":
        train_here(net, train, given.epochs, 0)
    else:
        net = zoo.train_digits(progress=False)
    found = measure(net.to(given.device), train, test, given.inputs, given.device)
    found |= {"network": given.network, "data": given.data, "device": given.device, "torch": torch.__version__}
    given.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

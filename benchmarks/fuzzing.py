"""A CIFAR-10 campaign per criterion: candidates judged per second, and what 10,000 iterations find.

    python -m benchmarks.fuzzing --weights resnet50-cifar10.safetensors --images test.webp --labels labels.npz \
        --training train-0.webp train-1.webp --inception inception/ --output fuzzing.json

The JSON is written anew after every row, and a row that fails says so and stops nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import neuralcov as nc
from benchmarks.subjects import load_images
from neuralcov.core.criterion import Criterion
from neuralcov.fuzz.campaign.result import Campaign
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.faults.pictures import fault_sheet, pick_from_groups
from neuralcov.fuzz.faults.quality import naturalness
from neuralcov.fuzz.search import wave
from neuralcov.fuzz.search.runner import ModelRunner
from neuralcov.sources.names import criterion_from_text
from neuralcov_lab import zoo

_MEAN, _STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RANDOM = "random"


def main() -> None:
    """Read the command line, measure, write."""
    options = _options()
    subject = Subject(options)
    results = Results(options.output, subject.describe())
    ends = time.monotonic() + options.budget_seconds
    if "rates" in options.parts:
        for row in _rates(options):
            results.add("rates", row["row"], partial(rate, subject, row, options), ends)
    if "parts" in options.parts:
        results.add("parts of a wave", "NLC", partial(parts, subject, options), ends)
    if "campaigns" in options.parts:
        for text in options.criteria:
            results.add("campaigns", text, partial(campaign, subject, text, options, ends), ends)


class Results:
    """A JSON file that grows row by row."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self._path, self._content = path, {"about": about}
        self._write()

    def add(self, table: str, row: str, measure: Callable[[], dict[str, Any]], ends: float) -> None:
        """Measure one row, unless there is no time left; keep what went wrong in its place."""
        if time.monotonic() > ends - 5:
            found: dict[str, Any] = {"left out": "no time left"}
        else:
            try:
                found = measure()
            except Exception as error:
                traceback.print_exc()
                found = {"error": f"{type(error).__name__}: {error}"}
        self._content.setdefault(table, {})[row] = found
        print(f"{table}, {row}: {json.dumps(found)}", flush=True)
        self._write()

    def _write(self) -> None:
        self._path.write_text(json.dumps(self._content, indent=1) + "\n")


class Subject:
    """The network, the seeds, and criteria that have learnt from training images."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        self.model = _network(options.weights).to(self.device)
        images, labels = load_images(options.images), load_labels(options.labels)
        labels = None if labels is None else labels[-len(images) :]
        chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(options.seed))[: options.seeds]
        self.seeds = images[chosen.sort().values]
        self.labels = None if labels is None else labels[chosen.sort().values]
        shape = (1, 3, 1, 1)
        self._mean, self._std = (torch.tensor(v).view(shape).to(self.device) for v in (_MEAN, _STD))
        self._training = options.training
        self._inputs = options.training_inputs
        self._batch = options.batch
        self._taught: dict[str, Criterion[Any]] = {}
        self.features = _features(options.inception, self.device)

    def ready(self, pixels: Tensor) -> Tensor:
        """From pixels in [0, 1] to what the network takes."""
        return (pixels - self._mean) / self._std

    def criterion(self, text: str) -> Criterion[Any]:
        """A criterion, taught on training images if it learns."""
        criterion = criterion_from_text("nlc" if text == RANDOM else text)
        if not criterion.learns:
            return criterion
        if criterion.name not in self._taught:
            coverage = nc.Coverage(self.model, [criterion])
            with quiet():
                coverage.calibrate(self._training_batches())
            self._taught[criterion.name] = coverage.criteria[0]
        return self._taught[criterion.name]

    def fuzzer(self, text: str, options: argparse.Namespace, **changes: Any) -> nc.Fuzzer:
        """A campaign in memory."""
        settings = {"wave": options.wave, "batch": options.batch, "seed": options.seed, "rounds": options.rounds}
        return nc.Fuzzer(
            nc.Coverage(self.model, [self.criterion(text)]),
            self.seeds,
            self.labels,
            preprocess=self.ready,
            guide="random" if text == RANDOM else "coverage",
            **(settings | changes),
        )

    def describe(self) -> dict[str, Any]:
        """What all rows have in common."""
        cuda = self.device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self.device) if cuda else f"{torch.get_num_threads()} CPU threads",
            "torch": torch.__version__,
            "python": platform.python_version(),
            "seeds": len(self.seeds),
            "right on the seeds": self._accuracy(),
            "plain forward, images per second": self._forward_rate(),
            "training images": min(self._inputs, sum(len(load_images(path)) for path in self._training)),
        }

    def _training_batches(self) -> Iterator[Tensor]:
        left = self._inputs
        if not self._training:
            raise ValueError("this criterion learns from training images: give --training")
        for path in self._training:
            for batch in load_images(path)[:left].split(self._batch):
                left -= len(batch)
                yield self.ready(batch.to(self.device).float() / 255)

    @torch.no_grad()
    def _accuracy(self) -> float | None:
        if self.labels is None:
            return None
        parts = [self.model(self.ready(part.to(self.device).float() / 255)) for part in self.seeds.split(self._batch)]
        return float((torch.cat(parts).argmax(1).cpu() == self.labels).float().mean())

    @torch.no_grad()
    def _forward_rate(self) -> float:
        images = self.ready(self.seeds[: self._batch].to(self.device).float() / 255)
        repeats = 10 if self.device.type == "cuda" else 1
        for _ in range(3 if repeats > 1 else 0):
            self.model(images)
        started = _now(self.device)
        for _ in range(repeats):
            self.model(images)
        return repeats * len(images) / (_now(self.device) - started)


def rate(subject: Subject, row: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Candidates judged per second in the course of a campaign, the first waves left out."""
    fuzzer = subject.fuzzer(row["criterion"], options, wave=row["wave"])
    with quiet():
        warm = fuzzer.run(seconds=options.warm_seconds).stats
        after = fuzzer.run(seconds=warm.seconds + options.rate_seconds).stats
    seconds = after.seconds - warm.seconds
    return {
        "wave": row["wave"],
        "seconds": seconds,
        "waves": after.waves - warm.waves,
        "judged": after.judged - warm.judged,
        "judged per second": (after.judged - warm.judged) / seconds,
        "mutants made per second": (after.candidates - warm.candidates) / seconds,
        "share valid": (after.valid - warm.valid) / max(1, after.candidates - warm.candidates),
        "share admitted": (after.kept - warm.kept) / max(1, after.judged - warm.judged),
    }


def parts(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Where the time of a wave goes under NLC; waiting for the device after each part makes it longer in all."""
    fuzzer = subject.fuzzer("nlc", options, wave=options.rate_waves[0])
    spent: dict[str, float] = {}
    with quiet():
        fuzzer.run(seconds=options.warm_seconds)
        before = fuzzer.run(seconds=0).stats
        with (
            _timed(wave, "draw_wave", "mutate and check", spent, subject.device),
            _timed(ModelRunner, "run", "run the model", spent, subject.device),
            _timed(nc.Coverage, "admit", "admit", spent, subject.device),
            _timed(CampaignState, "apply", "queue", spent, subject.device),
        ):
            after = fuzzer.run(seconds=before.seconds + options.rate_seconds / 2).stats
    waves = after.waves - before.waves
    whole = after.seconds - before.seconds
    each = {name: seconds / waves for name, seconds in spent.items()}
    rest = whole / waves - sum(each.values())
    return {"seconds per wave": {**each, "the rest": rest}, "waves": waves, "wave": options.rate_waves[0]}


def campaign(subject: Subject, text: str, options: argparse.Namespace, ends: float) -> dict[str, Any]:
    """One criterion's row of the table."""
    fuzzer = subject.fuzzer(text, options)
    with quiet():
        found = fuzzer.run(options.iterations, seconds=max(1.0, ends - time.monotonic()))
    stats = found.stats
    row = {
        "iterations": stats.iterations,
        "complete": stats.iterations >= options.iterations,
        "outputs": found.outputs,
        "faults": stats.faults,
        "faults / outputs": stats.faults / max(1, found.outputs),
        "classes": stats.classes,
        "entropy": stats.entropy,
        "share admitted": stats.admitted,
        "judged": stats.judged,
        "candidates": stats.candidates,
        "seconds": stats.seconds,
        "judged per second": stats.judged / max(stats.seconds, 1e-9),
        "wave": options.wave,
        "coverage": dict(stats.values),
        "growth": dict(stats.growth),
    }
    if subject.features is not None and found.outputs > 1 and time.monotonic() < ends:
        row |= _quality(subject, found)
    if options.pictures is not None and found.faults:
        _draw(fuzzer, found, options.pictures / f"faults-{text.replace(':', '-')}.png", subject.seeds)
    return row


def _quality(subject: Subject, found: Campaign) -> dict[str, Any]:
    assert subject.features is not None
    seeds = subject.seeds.to(subject.device)
    started = time.monotonic()
    try:
        natural = naturalness(found.inputs, seeds, subject.features, batch=250)
    except Exception as error:
        return {"quality error": f"{type(error).__name__}: {error}"}
    return {
        "IS": natural.inception_score,
        "IS deviation": natural.inception_deviation,
        "FID": natural.frechet_distance,
        "seconds for IS and FID": time.monotonic() - started,
    }


def _draw(fuzzer: nc.Fuzzer, found: Campaign, path: Path, seeds: Tensor) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shrunk = fuzzer.shrink(pick_from_groups(found.faults, 32))
    page = fault_sheet(shrunk, seeds, fuzzer.input_format, fuzzer.mutations, classes=_CLASSES)
    if page is not None:
        page.save(path)


def _rates(options: argparse.Namespace) -> list[dict[str, Any]]:
    once_per_wave = [
        {"row": f"{text.split(':')[0].upper()}, waves of {wave}", "criterion": text, "wave": wave}
        for wave in options.rate_waves
        for text in ("nlc", f"lvc:refresh={wave}")
    ]
    # A wave ends only when all of it is admitted, and here every admission factorises all layers again.
    wave = options.exact_wave
    return [*once_per_wave, {"row": "LVC refresh=1", "criterion": "lvc", "wave": wave}]


def load_labels(path: Path | None) -> Tensor | None:
    """Classes from .npy, CIFAR-10's own .bin, or ``labels`` in an .npz; of more than there are images, the last."""
    if path is None:
        return None
    if path.suffix == ".bin":
        return torch.from_numpy(np.fromfile(path, np.uint8).reshape(-1, 3073)[:, 0]).long()
    content = np.load(path)
    return torch.from_numpy(np.asarray(content["labels"] if path.suffix == ".npz" else content)).long()


def _network(weights: Path) -> nn.Module:
    model = zoo.resnet50().eval()
    model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in load_file(weights).items()})
    return model


def _features(folder: Path | None, device: torch.device) -> Callable[[Tensor], Tensor] | None:
    """What Inception makes of pixels; without it IS and FID are left out."""
    if folder is None:
        return None
    try:
        return zoo.inception(folder).to(device).of_pixels
    except Exception as error:
        print(f"no Inception features, so no IS and FID: {error}", flush=True)
        return None


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings of small suites."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        yield


@contextmanager
def _timed(owner: Any, name: str, part: str, spent: dict[str, float], device: torch.device) -> Iterator[None]:
    """Add up how long a function takes."""
    plain = getattr(owner, name)

    def measured(*args: Any, **kwargs: Any) -> Any:
        started = _now(device)
        found = plain(*args, **kwargs)
        spent[part] = spent.get(part, 0.0) + _now(device) - started
        return found

    setattr(owner, name, measured)
    try:
        yield
    finally:
        setattr(owner, name, plain)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzzing", description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True, help="a ResNet50 for CIFAR-10 (safetensors)")
    parser.add_argument("--images", type=Path, required=True, help="test images: .npy bytes, or one picture of all")
    parser.add_argument("--labels", type=Path, help="their classes, .npy or .npz; else what the network predicts")
    parser.add_argument("--training", type=Path, nargs="*", default=[], help="training images, for LVC and KMNC")
    parser.add_argument("--training-inputs", type=int, default=50_000, help="at most so many of them")
    parser.add_argument("--inception", type=Path, help="folder with Inception's weights, for IS and FID")
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--wave", type=int, default=1000, help="of the campaigns")
    parser.add_argument("--rate-waves", type=int, nargs="+", default=[4000, 1000], help="waves of the timed runs")
    parser.add_argument("--exact-wave", type=int, default=16, help="wave of the LVC row with refresh=1")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--criteria", nargs="+", default=["nlc", "lvc", "nc:0.75", RANDOM, "tknc", "kmnc", "cc"])
    parser.add_argument("--parts", nargs="+", default=["rates", "parts", "campaigns"])
    parser.add_argument("--budget-seconds", type=float, default=500.0, help="for everything but loading")
    parser.add_argument("--rate-seconds", type=float, default=10.0, help="of each timed run")
    parser.add_argument("--warm-seconds", type=float, default=3.0, help="before each timed run")
    parser.add_argument("--pictures", type=Path, help="folder for a sheet of faults per criterion")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("fuzzing.json"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

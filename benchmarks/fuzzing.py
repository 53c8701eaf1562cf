"""How fast a campaign on CIFAR-10 judges candidates, under every guide, and where the time of a wave goes.

    python -m benchmarks.fuzzing --device cuda --output fuzzing.json

Data come from the lab's cache (``neuralcov data get cifar10``), weights from its folder of trained networks. The JSON
is written anew after every row, and a row that fails says so and stops nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import neuralcov as nc
from benchmarks.timing import timed
from neuralcov.fuzz import FuzzSettings, Stylise
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.mutations.mutation import MutationDraw
from neuralcov.fuzz.search import wave
from neuralcov.fuzz.search.runner import ModelRunner
from neuralcov.sources.names import criterion_from_text
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.scales import FULL
from neuralcov_lab.experiments.searching.subjects import styles
from neuralcov_lab.experiments.settings import AnyCriterion
from neuralcov_lab.experiments.subjects import calibrated, image_subject

# A guide, with the criterion that takes part in it, where one does. ``WAVE`` stands for the size of the waves.
GUIDES = (
    "random",
    "margin",
    "elites",
    "margin+coverage nlc",
    "coverage nlc",
    "elites+coverage nlc",
    "coverage lcc:over=mean",
    "coverage lvc:refresh=WAVE",
    "coverage nc:0.75",
    "coverage kmnc:100",
    "coverage nbc",
    "coverage snac",
    "coverage tknc:10",
    "coverage tknp:50",
    "coverage cc:10",
    "coverage lsc:10",
    "coverage dsc:0.1",
    "coverage mdsc:10",
    "coverage nlc:rule=all",
    "coverage npc:0.7",
    "coverage ss",
)
# Every admission factorises all layers again, and a wave ends only when all of it is admitted.
EXACT = "coverage lvc"
ALSO = ("styles", "parts", "exact")


def main() -> None:
    """Read the command line, measure, write."""
    options = _options()
    subject = Subject(options)
    results = Results(options.output, subject.describe(), time.monotonic() + options.budget_seconds)
    for guide in options.guides:
        results.add("rates", guide, partial(rate, subject, guide, options.wave, options))
    if "styles" in options.also:
        results.add("stylising", "AdaIN", partial(stylising, subject, options))
    if "parts" in options.also:
        results.add("parts of a wave", "NLC", partial(parts, subject, options))
    if "exact" in options.also:
        results.add("rates", EXACT, partial(rate, subject, EXACT, options.exact_wave, options))


class Results:
    """A JSON file that grows row by row.

    Args:
        path: of the file.
        about: what all rows have in common.
        ends: when, by the monotonic clock, nothing new is begun.
    """

    def __init__(self, path: Path, about: dict[str, Any], ends: float) -> None:
        self._path, self._content, self._ends = path, {"about": about}, ends
        self._write()

    def add(self, table: str, row: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure one row, unless there is no time left; keep what went wrong in its place."""
        if time.monotonic() > self._ends:
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
    """A network of the zoo with its seeds, and criteria that have learnt from its training data."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._network = options.network
        self._context = ExperimentContext(FULL.smaller(options.divide), options.device, options.seed)
        found = image_subject(self._context, options.network)
        self.model, self._train, self._batch = found.model, found.train, options.batch
        self.seeds = found.test.take(self._context.rows(len(found.test), options.seeds, 29))

    @property
    def device(self) -> torch.device:
        """Where it is measured."""
        return self._context.device

    def fuzzer(self, text: str, wave: int) -> nc.Fuzzer:
        """A campaign in memory.

        Args:
            text: a guide as in ``GUIDES``.
            wave: parents that advance together.
        """
        guide, _, criterion = text.replace("WAVE", str(wave)).partition(" ")
        settings = FuzzSettings(guide=guide, wave=wave, batch=self._batch, max_per_group=1, check_random=True)
        return nc.Fuzzer(
            nc.Coverage(self.model, [self._criterion(criterion or "nc")]),
            self.seeds.inputs,
            self.seeds.labels,
            preprocess=self.seeds.prepare,
            levels=self.seeds.levels,
            settings=settings,
        )

    def styles(self) -> Stylise:
        """Stylising with the published weights."""
        found = styles(self._context)
        if found is None:
            raise DataError("the weights for stylising are not here; run: neuralcov data get adain")
        return found

    def describe(self) -> dict[str, Any]:
        """What all rows have in common."""
        cuda = self.device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self.device) if cuda else f"{torch.get_num_threads()} CPU threads",
            "torch": torch.__version__,
            "python": platform.python_version(),
            "network": self._network,
            "seeds": len(self.seeds),
            "training images": len(self._train),
            "plain forward, images per second": self._forward_rate(),
        }

    def _criterion(self, text: str) -> AnyCriterion:
        return calibrated(self._context, self._network, criterion_from_text(text))

    @torch.no_grad()
    def _forward_rate(self) -> float:
        images = self.seeds.prepare(self.seeds.pixels(slice(0, self._batch)))
        return len(images) / timed(lambda: self.model(images), self.device, repeats=10).median


def rate(subject: Subject, guide: str, wave: int, options: argparse.Namespace) -> dict[str, Any]:
    """Candidates judged per second in the course of a campaign, the first waves left out."""
    fuzzer = subject.fuzzer(guide, wave)
    with quiet():
        warm = fuzzer.run(seconds=options.warm_seconds, progress=False).stats
        after = fuzzer.run(seconds=warm.seconds + options.rate_seconds, progress=False).stats
    seconds, judged = after.seconds - warm.seconds, after.judged - warm.judged
    made = after.candidates - warm.candidates
    return {
        "wave": wave,
        "seconds": seconds,
        "waves": after.waves - warm.waves,
        "judged": judged,
        "judged per second": judged / seconds,
        "mutants made per second": made / seconds,
        "share valid": (after.valid - warm.valid) / max(1, made),
        "share kept": (after.kept - warm.kept) / max(1, judged),
    }


def stylising(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Pictures stylised per second, a batch of them at once and one after the other."""
    style = subject.styles()
    images = subject.seeds.pixels(slice(0, options.style_batch))
    chances = np.random.default_rng(options.seed).random(len(images))

    def seconds(count: int) -> float:
        draw = MutationDraw.of_batch(style.choose(chances[:count]))
        return timed(lambda: style.apply(images[:count], draw), subject.device, repeats=5).median

    return {
        "batch": len(images),
        "per second": len(images) / seconds(len(images)),
        "per second, one at a time": 1 / seconds(1),
        "side": style.side,
    }


def parts(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    """Where the time of a wave goes under NLC; waiting for the device after each part makes it longer in all."""
    fuzzer = subject.fuzzer("coverage nlc", options.wave)
    spent: dict[str, float] = {}
    with quiet():
        before = fuzzer.run(seconds=options.warm_seconds, progress=False).stats
        with (
            _adding_up(wave, "draw_wave", "mutate and check", spent, subject.device),
            _adding_up(ModelRunner, "run", "run the model", spent, subject.device),
            _adding_up(nc.Coverage, "admit", "admit", spent, subject.device),
            _adding_up(CampaignState, "apply", "queue", spent, subject.device),
        ):
            after = fuzzer.run(seconds=before.seconds + options.rate_seconds / 2, progress=False).stats
    waves = after.waves - before.waves
    each = {name: seconds / waves for name, seconds in spent.items()}
    rest = (after.seconds - before.seconds) / waves - sum(each.values())
    return {"seconds per wave": {**each, "the rest": rest}, "waves": waves, "wave": options.wave}


@contextmanager
def _adding_up(owner: Any, name: str, part: str, spent: dict[str, float], device: torch.device) -> Iterator[None]:
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
    """Seconds on the wall, which a campaign's limits go by, after everything sent to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzzing", description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="resnet50", help="of the zoo, trained on CIFAR-10")
    parser.add_argument("--guides", nargs="*", default=GUIDES, help="a guide, or a guide and its criterion, each")
    parser.add_argument(
        "--also", nargs="*", default=ALSO, help="styles: stylising alone; parts: of a wave; exact: LVC's own way"
    )
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--wave", type=int, default=4000)
    parser.add_argument("--exact-wave", type=int, default=16, help="of the row of LVC with refresh=1")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--style-batch", type=int, default=500, help="pictures stylised at once")
    parser.add_argument("--divide", type=int, default=1, help="divide the numbers of inputs, to try things out")
    parser.add_argument("--budget-seconds", type=float, default=500.0, help="after which nothing new is begun")
    parser.add_argument("--rate-seconds", type=float, default=5.0, help="of each timed run")
    parser.add_argument("--warm-seconds", type=float, default=2.0, help="before each timed run")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("fuzzing.json"))
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Run as a program: kill work at random moments; what was reported as done must be there, and the rest can go on.

    python -m tests.reliability.kills --folder build/kills --kills 1000

Workers are forked from here, so that none pays for imports. Each says on a pipe what is done; then it is killed by
SIGKILL at a random moment. Afterwards every file that was said to be done is read and compared. The last line is JSON.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.files import write_json
from neuralcov_lab import training

ROUNDS = 10_000


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 4))


def batch(number, size=8):
    return torch.randn(size, 6, generator=torch.Generator().manual_seed(number))


def saving(folder, say):
    """Save after every update; a loaded state must be one that was saved, and no older than the last one told."""
    coverage = nc.Coverage(model(), [nc.NLC(), nc.TKNC(2), nc.NC(0.5)])
    for number in range(ROUNDS):
        coverage.update(batch(number))
        coverage.save(folder / "x.ncov")
        say([number, coverage.values()])


def check_saving(folder, said):
    found = nc.Coverage.load(folder / "x.ncov", model())
    number = found.inputs // 8 - 1
    assert number >= said[0]
    if number == said[0]:
        assert found.values() == said[1]
    else:
        twin = nc.Coverage(model(), [nc.NLC(), nc.TKNC(2), nc.NC(0.5)])
        for each in range(number + 1):
            twin.update(batch(each))
        assert found.values() == twin.values()


def calibrating(folder, say):
    for number in range(ROUNDS):
        coverage = nc.Coverage(model(), [nc.KMNC(5), nc.LVC()])
        coverage.calibrate([batch(number, 60)])
        coverage.save_calibration(folder / "x.ncal")
        say([number])


def check_calibrating(folder, said):
    coverage = nc.Coverage(model(), [nc.KMNC(5), nc.LVC()])
    coverage.calibrate(folder / "x.ncal")
    wanted = nc.Coverage(model(), [nc.KMNC(5), nc.LVC()])
    for number in (said[0], said[0] + 1):
        wanted.calibrate([batch(number, 60)])
        if wanted.calibration.identity(wanted.calibration.of_training) == coverage.calibration.identity(
            coverage.calibration.of_training
        ):
            return
    raise AssertionError("a calibration that nobody saved")


def measuring(folder, say):
    """Write all that ``measure`` writes."""
    for number in range(ROUNDS):
        coverage = nc.Coverage(model(), [nc.NLC(), nc.NC(0.5)])
        coverage.assess([batch(number)], per_input=True, progress=False)
        coverage.save(folder / "x.ncov")
        coverage.results().write(folder / "x.json")
        coverage.per_input().write(folder / "x.csv")
        say([number, coverage.values()])


def check_measuring(folder, said):
    nc.Coverage.load(folder / "x.ncov", model())
    values = json.loads((folder / "x.json").read_text())["values"]
    later = nc.Coverage(model(), [nc.NLC(), nc.NC(0.5)])
    later.assess([batch(said[0] + 1)], progress=False)
    assert values in (said[1], later.values())
    assert len((folder / "x.csv").read_text().splitlines()) == 9


def combining(folder, say):
    parts = []
    for number in range(3):
        part = nc.Coverage(model(), [nc.TKNC(2), nc.NC(0.5)])
        part.update(batch(number))
        parts.append(part.to_bytes())
    for number in range(ROUNDS):
        total = nc.Coverage.from_bytes(parts[0])
        for data in parts[1 : 2 + number % 2]:
            total.merge(nc.Coverage.from_bytes(data))
        total.save(folder / "x.ncov")
        say([number, total.values()])


def check_combining(folder, said):
    found = nc.Coverage.load(folder / "x.ncov")
    assert found.inputs in (16, 24)
    if found.inputs == 16 + 8 * (said[0] % 2):
        assert found.values() == said[1]


def fuzzing(folder, say):
    """Go on with one campaign for ever."""
    torch.manual_seed(1)
    seeds = (torch.rand(16, 1, 8, 8) * 255).byte()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    place = folder / "campaign"
    for round_ in range(1, ROUNDS):
        fuzzer = nc.Fuzzer(nc.Coverage(net, [nc.NLC()]), seeds, folder=place, wave=8, seed=3, checkpoint=0.02)
        go = fuzzer.resume if (place / "config.json").is_file() else fuzzer.run
        done = go(iterations=16 * round_)
        say([done.stats.iterations, done.exact])


def check_fuzzing(folder, said):
    from neuralcov.fuzz.campaign.reader import open_campaign

    assert said[1], "waves since the checkpoint came out otherwise"
    assert open_campaign(folder / "campaign").state.counts.finished >= said[0]


def train(folder, say):
    for number in range(ROUNDS):
        name = f"w{number % 3}.safetensors"
        settings = training.Settings(epochs=1, limit=64, checkpoint_seconds=0.0, resume=True)
        card = training.train("digits", folder / name, None, settings)
        say([name, card.weights_sha256])


def check_train(folder, said):
    from neuralcov.sources.models import read_weights

    for path in folder.glob("w*.safetensors"):
        assert read_weights(path)
    assert (folder / said[0]).is_file()
    json.loads((folder / said[0]).with_suffix(".json").read_text())


WORK = {
    "save": (saving, check_saving, 0.05),
    "calibrate": (calibrating, check_calibrating, 0.05),
    "measure": (measuring, check_measuring, 0.05),
    "combine": (combining, check_combining, 0.05),
    "fuzz": (fuzzing, check_fuzzing, 0.3),
    "train": (train, check_train, 0.3),
}


def killed(work, folder, longest, dice):
    """Fork a worker, kill it at a random moment after its first word, and return the last word it said."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        warnings.simplefilter("ignore")
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        try:
            with os.fdopen(writing, "w", buffering=1) as pipe:
                work(folder, lambda words: pipe.write(json.dumps(words) + "\n"))
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(3)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = [pipe.readline()]
        time.sleep(dice.random() * longest)
        os.kill(process, signal.SIGKILL)
        lines += pipe.readlines()
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status), f"the worker ended with {status} before it was killed"
    return json.loads([line for line in lines if line.endswith("\n")][-1])


class _Enough(Exception):
    """End the work that is done for its imports."""


def _import_all(folder, only):
    """Do each sort of work once here, so that workers need not import what it needs."""

    def once(words):
        raise _Enough

    for name in only:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            WORK[name][0](folder, once)
        except _Enough:
            shutil.rmtree(folder)


def main(folder, kills, only, seconds, seed=0):
    """Kill each sort of work in turn; count kills and faults."""
    torch.set_num_threads(1)
    _import_all(folder / "first", only)
    dice, counts, faults = random.Random(seed), dict.fromkeys(only, 0), []
    until = time.monotonic() + seconds
    for number in range(kills):
        name = only[number % len(only)]
        work, check, longest = WORK[name]
        place = folder / name
        if name == "train" or (name == "fuzz" and number % (40 * len(only)) < len(only)):
            shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        said = killed(work, place, longest, dice)
        counts[name] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(place, said)
        except BaseException as error:
            faults.append([name, number, f"{type(error).__name__}: {error}"])
            print("FAULT", *faults[-1], flush=True)
        if time.monotonic() > until:
            break
    time.sleep(6)  # what killed processes left is swept when it is a moment old
    for name in only:
        for path in (folder / name).rglob("x.*"):
            if not path.name.endswith(".unfinished"):
                write_json(path.with_name(f"{path.name}"), {})
    left = [path.name for path in folder.rglob("x.*.unfinished")]
    return {"kills": sum(counts.values()), **counts, "faults": faults, "unfinished files after a sweep": len(left)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--only", action="append", choices=list(WORK))
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    found = main(chosen.folder, chosen.kills, chosen.only or list(WORK), chosen.seconds, chosen.seed)
    print(json.dumps(found))
    sys.exit(bool(found["faults"]))

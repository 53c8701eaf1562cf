"""What each process does for ``test_process_group``: shards measured there, brought together, values written down."""

import json
import os
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, multiprocessing, nn

import neuralcov as nc
from neuralcov.core.records import fingerprint

CLASSES = 4
EXACT = [
    nc.NC(0.5),
    nc.KMNC(10, errors=True),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(2),
    nc.TKNP(2),
    nc.SS(),
    nc.LSC(1),
    nc.DSC(0.1),
    nc.MDSC(0.5),
    nc.NPC(clusters=2, buckets=20),
    nc.LCC(),
    nc.LCC(over="mean", seed=3),
]
ROUNDED = [nc.LVC(), nc.LVC(groups=3), nc.NLC(rule="all"), nc.NLC(rule="all", classes=CLASSES)]
BY_ORDER = [nc.NLC(), nc.CC(1.5)]
CRITERIA = [*EXACT, *ROUNDED, *BY_ORDER]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.head = nn.Linear(6, 12), nn.Linear(12, 12), nn.Linear(12, CLASSES)

    def forward(self, x):
        if x.isnan().all():
            raise RuntimeError("no number at all")
        return self.head(torch.relu(self.down(torch.relu(self.up(x)))))


def batches(seed, sizes):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, 6, generator=generator), torch.randint(CLASSES, (size,), generator=generator))
        for size in sizes
    ]


TRAINING = batches(1, [100, 100])
# Seven batches, so that no number of ranks divides them; the last is short.
SUITE = batches(2, [9, 9, 9, 9, 9, 9, 5])


def coverage(criteria=CRITERIA):
    cov = nc.Coverage(Net(), criteria)
    cov.calibrate(TRAINING)
    return cov


def told(cov):
    """All that a coverage tells, and its states to the bit."""
    return {
        "values": cov.values(),
        "inputs": cov.inputs,
        "findings": [str(finding) for finding in cov.findings()],
        "details": cov.details(),
        "states": {c.name: fingerprint(s) for c, s in zip(cov.criteria, cov.states, strict=True)},
        "runs": sum(run.inputs for run in cov._measurement.seen.runs),
    }


def at_the_end(rank, size):
    cov = coverage()
    cov.assess(SUITE[rank::size], group=distributed.group.WORLD)
    return told(cov)


def empty_shards(rank, size):
    cov = coverage()
    cov.assess(SUITE if rank == size - 1 else [], group=distributed.group.WORLD)
    return told(cov)


def step_by_step(rank, size):
    cov = coverage()
    cov.assess(SUITE[rank::size], group=distributed.group.WORLD, sync="step")
    return told(cov)


def twice(rank, size):
    """What was brought together before counts once."""
    cov = coverage([*EXACT, *ROUNDED])
    cov.assess(SUITE[:4][rank::size], group=distributed.group.WORLD)
    cov.assess(SUITE[4:][rank::size], group=distributed.group.WORLD)
    cov.reduce()
    return told(cov)


def reduced(rank, size):
    cov = coverage()
    for inputs, labels in SUITE[rank::size]:
        cov.update(inputs, labels)
    cov.reduce()
    found = told(cov)
    before = cov.to_bytes()
    cov.reduce()
    found["again"] = cov.to_bytes() == before
    cov.update(*SUITE[0])
    try:
        cov.reduce()
    except nc.NeuralcovError as error:
        found["refused"] = str(error)
    return found


def failing(rank, size):
    """One rank's data break."""
    cov = coverage([nc.NC(0.5)])
    last = rank == size - 1
    data = [torch.full((3, 6), torch.nan)] if last else SUITE
    try:
        cov.assess(data, group=distributed.group.WORLD, timeout=20)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def nothing(rank, size):
    try:
        coverage([nc.NC(0.5)]).assess([], group=distributed.group.WORLD)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def strangers(rank, size):
    """Ranks with other criteria than the first."""
    cov = coverage([nc.NC(0.5)] if rank == 0 else [nc.NC(0.25)])
    cov.update(*SUITE[0])
    try:
        cov.reduce()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


SCENARIOS = [at_the_end, empty_shards, step_by_step, twice, reduced, failing, nothing, strangers]


def join(folder, rank, size, timeout=60):
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
    )


def work(rank, size, folder):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    join(folder, rank, size)
    found = {scenario.__name__: scenario(rank, size) for scenario in SCENARIOS}
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


def dying(rank, size, folder):
    """The last rank is gone before it hands in its part."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    join(folder, rank, size)
    cov = coverage([nc.NC(0.5)])
    cov.update(*SUITE[rank])
    if rank == size - 1:
        os._exit(9)
    _write_error(folder, rank, lambda: cov.reduce(timeout=20))


def sleeping(rank, size, folder):
    """The last rank does not come in time."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    join(folder, rank, size)
    cov = coverage([nc.NC(0.5)])
    cov.update(*SUITE[rank])
    if rank == size - 1:
        time.sleep(12)
        return
    _write_error(folder, rank, lambda: cov.reduce(timeout=2))


def _write_error(folder, rank, action):
    started = time.monotonic()
    try:
        action()
        found = None
    except nc.NeuralcovError as error:
        found = [type(error).__name__, str(error)]
    Path(folder, f"{rank}.json").write_text(json.dumps([found, time.monotonic() - started]))
    sys.stdout.flush()
    os._exit(0)


def spawned(target, size, folder):
    """Run a target in so many processes; return what they wrote, ``None`` for one that wrote nothing."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=target, args=(rank, size, str(folder))) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        if process.is_alive():
            process.kill()
            raise AssertionError("a rank hangs")
    files = [Path(folder, f"{rank}.json") for rank in range(size)]
    return [json.loads(file.read_text()) if file.is_file() else None for file in files]

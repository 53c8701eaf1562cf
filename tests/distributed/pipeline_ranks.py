"""What each process does for ``test_pipeline``: a stage of torch's own pipeline, heard, and united with the others."""

import json
import warnings
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import neuralcov as nc
from neuralcov.core.records import fingerprint
from tests.distributed.group_ranks import join

CLASSES, MICRO = 4, 5
EXACT = [
    nc.NC(0.5),
    nc.KMNC(10, errors=True),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(2),
    nc.CC(1.5),
    nc.NLC(),
    nc.NLC(rule="all"),
]
ROUNDED = [nc.LVC(), nc.LVC(sketch=4)]


class Block(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.proj, self.act = nn.Linear(width, out), nn.ReLU()

    def forward(self, x):
        return self.act(self.proj(x))


def network():
    torch.manual_seed(0)
    return nn.Sequential(Block(6, 12), Block(12, 12), Block(12, 9), nn.Linear(9, CLASSES)).eval()


def batches(seed, count):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(4 * MICRO, 6, generator=random) for _ in range(count)]


def stage_of(net, rank, size):
    """Keep a stage's own modules under the names that they have in the whole."""
    names = [name for name, _ in net.named_children()]
    per = -(-len(names) // size)
    for name in names[: rank * per] + names[(rank + 1) * per :]:
        delattr(net, name)
    return net


def micro_batches(suite):
    return [part for batch in suite for part in batch.split(MICRO)]


def staged(rank, size, criteria=(*EXACT, *ROUNDED)):
    """Hear a stage while the pipeline runs."""
    stage = stage_of(network(), rank, size)
    pipe = ScheduleGPipe(PipelineStage(stage, rank, size, torch.device("cpu")), n_microbatches=4)

    def run(suite):
        for batch in suite:
            with torch.no_grad():
                pipe.step(*([batch] if rank == 0 else []))

    run(batches(9, 1))  # the first step asks every stage for the form of its outputs
    cov = nc.Coverage(stage, criteria, keys="plain" if rank == 0 else "none")
    with cov.listen(calibrate=True):
        run(batches(1, 8))
    with cov.listen():
        run(batches(2, 3))
    return cov


def united(rank, size):
    cov = staged(rank, size).unite()
    return {
        "values": cov.values(),
        "details": cov.details(),
        "layers": list(cov.layout),
        "inputs": cov.inputs,
        "model": cov.provenance()["model"]["class"],
        "states": {c.name: fingerprint(s) for c, s in zip(cov.criteria, cov.states, strict=True)},
    }


def refused(rank, size):
    try:
        staged(rank, size, [nc.NC(0.5), nc.TKNP(2)]).unite(timeout=20)
    except nc.NeuralcovError as error:
        return [type(error).__name__, str(error)]
    return None


def idle(rank, size):
    """The last stage heard nothing."""
    cov = staged(rank, size, [nc.NC(0.5)])
    if rank == size - 1:
        cov.reset()
    try:
        cov.unite(timeout=20)
    except nc.NeuralcovError as error:
        return [type(error).__name__, str(error)]
    return None


def work(rank, size, folder):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    join(folder, rank, size)
    found = {scenario.__name__: scenario(rank, size) for scenario in (united, refused, idle)}
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


def whole(criteria=(*EXACT, *ROUNDED)):
    """Measure the whole network in one process, in the same micro-batches."""
    cov = nc.Coverage(network(), criteria)
    cov.calibrate(micro_batches(batches(1, 8)))
    cov.assess(micro_batches(batches(2, 3)))
    return cov

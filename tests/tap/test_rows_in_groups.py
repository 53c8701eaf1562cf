"""The probe of a model that is spread over processes: all of them run it, or none does."""

import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from neuralcov.tap import Batch, Tap


def _free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def _measure(rank, port, found):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    whole = Tap(model).run(Batch(torch.ones(2, 5)))[0].layers["2"]
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    calls = []
    model.register_forward_hook(lambda module, args, output: calls.append(len(args[0])))
    tap = Tap(model)
    for sizes in ((1, 4), (4, 5), (3, 4)):
        batch, _ = tap.run(Batch(torch.ones(sizes[rank], 5)))
    found[rank] = (calls, torch.allclose(batch.layers["2"][:2], whole, atol=1e-6))
    dist.destroy_process_group()


@pytest.mark.skipif(torch.__version__ < (2, 7), reason="FSDP runs on a CPU from torch 2.7 on")
def test_all_processes_probe_or_none():
    with mp.Manager() as manager:
        found = manager.dict()
        mp.spawn(_measure, (_free_port(), found), nprocs=2)
        assert dict(found) == {0: ([1, 3, 2, 4, 3], True), 1: ([4, 3, 2, 5, 4], True)}

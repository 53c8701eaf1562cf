"""Listening to models that are wrapped for several processes: the wrapper is called, the module in it is heard."""

import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import neuralcov as nc

CRITERIA = [nc.NC(0.5), nc.TKNC(2), nc.TKNP(2), nc.NLC(rule="all")]


def _net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))


def _inputs():
    return torch.randn(40, 5, generator=torch.Generator().manual_seed(1))


def _join(rank, ranks, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)


def _free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def _gradients(model, inputs):
    model.zero_grad()
    model(inputs).square().mean().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def _rank(rank, ranks, port, folder):
    _join(rank, ranks, port)
    try:
        wrapped = DistributedDataParallel(_net().eval())
        mine = _inputs()[rank::ranks]
        without = _gradients(wrapped, mine)
        coverage = nc.Coverage(wrapped, CRITERIA)
        with coverage.listen() as heard:
            within = _gradients(wrapped, mine[:7])
            wrapped(mine[7:])
        again = _gradients(wrapped, mine)
        assert (heard.passes, heard.inputs) == (2, len(mine))
        assert all(torch.equal(a, b) for a, b in zip(without, again, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(without, within, strict=True))
        assert not any(module._forward_hooks for module in wrapped.modules())
        coverage.save(folder / f"{rank}.ncov")
        # All ranks hold the mean of all gradients, as they do without the block.
        gathered = [torch.zeros_like(within[0]) for _ in range(ranks)]
        dist.all_gather(gathered, within[0])
        assert all(torch.equal(gathered[0], other) for other in gathered)
        dist.barrier()  # a rank that leaves while another still talks to it can abort that one
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, 2])
def test_wrapped_models(ranks, tmp_path):
    mp.spawn(_rank, (ranks, _free_port(), tmp_path), nprocs=ranks)
    together, *others = (nc.Coverage.load(tmp_path / f"{rank}.ncov") for rank in range(ranks))
    for other in others:
        together.merge(other)
    assessed = nc.Coverage(_net(), CRITERIA)
    shards = [_inputs()[rank::ranks] for rank in range(ranks)]
    assessed.assess([part for shard in shards for part in (shard[:7], shard[7:])])
    if ranks == 1:
        assert together.values() == assessed.values()
    else:
        # Covariances merge to rounding.
        assert together.values() == pytest.approx(assessed.values(), rel=1e-12)
        exact = ["NC(0.5)", "TKNC(2)", "TKNP(2)"]
        assert [together.values()[name] for name in exact] == [assessed.values()[name] for name in exact]


def test_the_module_itself_is_watched_while_its_wrapper_is_called():
    _join(0, 1, _free_port())
    try:
        inner = _net().eval()
        wrapped = DistributedDataParallel(inner)
        with nc.watch(inner, CRITERIA) as coverage:
            wrapped(_inputs())
        assert coverage.inputs == 40
    finally:
        dist.destroy_process_group()

"""What each of two processes does for ``test_shards``: models spread over both, measured there, values written down."""

import json
import warnings
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

import neuralcov as nc

CRITERIA = [nc.NLC(rule="all"), nc.NC(0.5), nc.TKNC(3), nc.KMNC(10), nc.LVC()]


class MLP(nn.Module):
    def __init__(self, hidden=16, classes=4):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(6, hidden), nn.Linear(hidden, 6)
        self.head = nn.Linear(6, classes)

    def forward(self, x):
        return self.head(torch.tanh(self.down(torch.relu(self.up(x)))))


class Tokens(nn.Module):
    """Works on (batch, tokens, features); between ``down`` and ``head`` each rank may have its own tokens."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.norm, self.head = nn.Linear(6, 16), nn.Linear(16, 6), nn.LayerNorm(6), nn.Linear(6, 4)

    def forward(self, x, attention_mask=None):
        return self.head(self.norm(self.down(torch.relu(self.up(x))))).mean(1)


class LocalLinear(nn.Linear):
    """Computes with its rank's rows of the weight, as styles do that replace ``forward``."""

    def forward(self, x):
        return functional.linear(x, self.weight.to_local(), self.bias.to_local())


class LocalConv(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(x, self.weight.to_local(), self.bias.to_local())


class LocalConv1D(Conv1D):
    def forward(self, x):
        return x @ self.weight.to_local() + self.bias.to_local()


class OtherTokens(nn.Linear):
    """Gives every rank its own tokens, as plain tensors."""

    def forward(self, x):
        whole = functional.linear(x, self.weight.full_tensor(), self.bias.full_tensor())
        return whole.chunk(2, dim=1)[distributed.get_rank()]


class BatchInShards(MLP):
    """Takes what each rank is given for a part of one large batch, with whole weights on every rank."""

    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh
        distribute_module(self, mesh)

    def forward(self, x):
        return super().forward(DTensor.from_local(x, self.mesh, [Shard(0)])).to_local()


def inputs(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def values(model, batch, training, criteria=CRITERIA, **options):
    """Calibrate on one batch, measure another in two parts, and list widths and values; or the error."""
    coverage = nc.Coverage(model, criteria, **options)
    parts = [batch[:7], batch[7:]] if isinstance(batch, torch.Tensor) else [batch]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.calibrate([training])
            for part in parts:
                coverage.update(part)
            found = coverage.values()
    except nc.NeuralcovError as error:
        return str(error)
    return {**{row.layer: row.neurons for row in coverage.by_layer()}, **found}


def sharded(mesh, kind, *arguments, axis=0, placement=None):
    """A module with its parameters as DTensors, the weight in shards along an axis."""
    torch.manual_seed(0)
    module = kind(*arguments)
    for name, parameter in list(module.named_parameters()):
        shards = placement or Shard(axis if parameter.dim() > 1 else 0)
        module.register_parameter(name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [shards])))
    return nn.Sequential(module)


FLAT, TRAINING = inputs(1, 20, 6), inputs(2, 40, 6)
TEXT, TEXTS = inputs(3, 20, 8, 6), inputs(4, 40, 8, 6)
MASKED = {"x": TEXT, "attention_mask": (torch.arange(8) < torch.arange(20)[:, None] % 8 + 1).long()}
PICTURES = inputs(5, 20, 3, 5, 5), inputs(6, 40, 3, 5, 5)
SURPRISE = [nc.LSC(1), nc.DSC(0.1)]

WHOLE, LOCAL = {"output_layouts": Replicate()}, {"use_local_output": False}
PLANS = {
    "plain outputs": {"up": ColwiseParallel(), "down": RowwiseParallel()},
    "DTensor outputs": {"up": ColwiseParallel(**LOCAL), "down": RowwiseParallel(**LOCAL)},
    "whole outputs": {"up": ColwiseParallel(**WHOLE), "down": RowwiseParallel(input_layouts=Replicate())},
    "head whole": {"up": ColwiseParallel(), "down": RowwiseParallel(), "head": ColwiseParallel(**WHOLE)},
    "head DTensor": {"up": ColwiseParallel(), "down": RowwiseParallel(), "head": ColwiseParallel(**LOCAL)},
    "head in parts": {"up": ColwiseParallel(), "down": RowwiseParallel(), "head": ColwiseParallel()},
}


def tokens_plan():
    return {
        "up": ColwiseParallel(),
        "down": RowwiseParallel(output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), **WHOLE),
    }


def scenarios(rank, mesh):
    """Name every scenario and give its values here."""
    for name, plan in PLANS.items():
        model = parallelize_module(MLP(), mesh, plan)
        if "DTensor outputs" in name:
            # Only a plan for all modules takes DTensors from one to the next.
            model = parallelize_module(model, mesh, {"head": ColwiseParallel(**WHOLE)})
        yield name, values(model, FLAT, TRAINING)
        if name.startswith("head"):
            yield f"classes, {name}", values(model, FLAT, TRAINING, SURPRISE)
    for name, hidden in {"uneven": 7, "one neuron": 1}.items():
        # Of plain tensors the next module would take all shards to be equally wide.
        plan = {"up": ColwiseParallel(**LOCAL), "down": RowwiseParallel()}
        yield name, values(parallelize_module(MLP(hidden), mesh, plan), FLAT, TRAINING)
    for pool, batch in {"tokens": TEXT, "masked tokens": MASKED}.items():
        yield pool, values(parallelize_module(Tokens(), mesh, tokens_plan()), batch, TEXTS)
    norms = parallelize_module(Tokens(), mesh, tokens_plan())
    yield "norms", values(norms, TEXT, TEXTS, layers=[nn.Linear, nn.LayerNorm])
    yield "inside forward", values(sharded(mesh, LocalLinear, 6, 16), FLAT, TRAINING)
    yield (
        "packed",
        values(sharded(mesh, LocalLinear, 6, 16, placement=_StridedShard(0, split_factor=2)), FLAT, TRAINING),
    )
    yield "convolution", values(sharded(mesh, LocalConv, 3, 5, 3), *PICTURES)
    yield "Conv1D", values(sharded(mesh, LocalConv1D, 16, 6, axis=1), FLAT, TRAINING)
    yield "other tokens", values(sharded(mesh, OtherTokens, 6, 16), TEXT, TEXTS)
    relevance = [nc.NPC(clusters=2, buckets=3)]
    model = parallelize_module(MLP(), mesh, PLANS["plain outputs"])
    yield "relevance", values(model, (FLAT, torch.arange(20) % 4), (TRAINING, torch.arange(40) % 4), relevance)
    yield "not spread", values(MLP(), FLAT, TRAINING)
    # FSDP: every rank measures inputs of its own.
    own = inputs(10 + rank, 20, 6)
    yield "FSDP, whole model", values(fully_shard(MLP(), mesh=mesh), own, TRAINING)
    model = MLP()
    for module in (model.up, model.down, model):
        fully_shard(module, mesh=mesh)
    yield "FSDP, each layer", values(model, own, TRAINING)
    yield "batch in shards", values(BatchInShards(mesh), own, TRAINING)
    both = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(MLP(), both["tensor"], PLANS["plain outputs"])
    for module in (model.up, model.down, model):
        fully_shard(module, mesh=both["data"])
    yield "FSDP and tensor parallel", values(model, FLAT, TRAINING)


def work(rank, folder):
    """Run all scenarios as one of two ranks and write down what they gave."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        found = dict(scenarios(rank, init_device_mesh("cpu", (2,))))
        Path(folder, f"{rank}.json").write_text(json.dumps(found))
        distributed.barrier()
    finally:
        distributed.destroy_process_group()

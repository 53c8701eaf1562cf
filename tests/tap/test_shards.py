"""Layers spread over two processes are measured as one process measures them, or refused."""

import json

import pytest
import torch
from torch import multiprocessing, nn

import neuralcov as nc
from tests.tap import shard_ranks as ranks

pytestmark = pytest.mark.skipif(torch.__version__ < (2, 7), reason="FSDP runs on a CPU from torch 2.7 on")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What both ranks found in every scenario."""
    folder = tmp_path_factory.mktemp("ranks")
    multiprocessing.spawn(ranks.work, (str(folder),), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def seeded(module, *arguments):
    """The same module as on the ranks, in one process."""
    torch.manual_seed(0)
    return nn.Sequential(module(*arguments))


@pytest.mark.parametrize(
    ("scenario", "model", "data", "options"),
    [
        *((plan, ranks.MLP, (ranks.FLAT, ranks.TRAINING), {}) for plan in ranks.PLANS),
        ("uneven", lambda: ranks.MLP(7), (ranks.FLAT, ranks.TRAINING), {}),
        ("one neuron", lambda: ranks.MLP(1), (ranks.FLAT, ranks.TRAINING), {}),
        ("not spread", ranks.MLP, (ranks.FLAT, ranks.TRAINING), {}),
        ("FSDP and tensor parallel", ranks.MLP, (ranks.FLAT, ranks.TRAINING), {}),
        ("classes, head whole", ranks.MLP, (ranks.FLAT, ranks.TRAINING), {"criteria": ranks.SURPRISE}),
        ("classes, head DTensor", ranks.MLP, (ranks.FLAT, ranks.TRAINING), {"criteria": ranks.SURPRISE}),
        ("tokens", ranks.Tokens, (ranks.TEXT, ranks.TEXTS), {}),
        ("masked tokens", ranks.Tokens, (ranks.MASKED, ranks.TEXTS), {}),
        ("norms", ranks.Tokens, (ranks.TEXT, ranks.TEXTS), {"layers": [nn.Linear, nn.LayerNorm]}),
        ("convolution", lambda: seeded(nn.Conv2d, 3, 5, 3), ranks.PICTURES, {}),
        ("inside forward", lambda: seeded(nn.Linear, 6, 16), (ranks.FLAT, ranks.TRAINING), {}),
        ("packed", lambda: seeded(nn.Linear, 6, 16), (ranks.FLAT, ranks.TRAINING), {}),
        ("Conv1D", lambda: seeded(ranks.Conv1D, 16, 6), (ranks.FLAT, ranks.TRAINING), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_both_ranks_give_the_values_of_one_process(found, scenario, model, data, options):
    expected = ranks.values(model(), *data, **options)
    assert isinstance(expected, dict)
    for rank in found:
        assert rank[scenario] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("scenario", ["FSDP, whole model", "FSDP, each layer", "batch in shards"])
def test_data_parallel_ranks_measure_their_own_inputs(found, scenario):
    for number, rank in enumerate(found):
        expected = ranks.values(ranks.MLP(), ranks.inputs(10 + number, 20, 6), ranks.TRAINING)
        assert rank[scenario] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("classes, head in parts", "the model's output holds 2 of the 4 features of layer 'head'"),
        ("other tokens", "layer '0' gives every rank another part of its output"),
        ("relevance", "layer 'up' is spread over several ranks, and relevance is not followed"),
    ],
)
def test_what_is_refused(found, scenario, message):
    for rank in found:
        assert message in rank[scenario]


class Half(nn.Linear):
    def forward(self, x):
        return super().forward(x)[..., : self.out_features // 2]


class HalfConv(nn.Conv2d):
    def forward(self, x):
        return super().forward(x)[:, : self.out_channels // 2]


@pytest.mark.parametrize(
    ("module", "inputs", "said"),
    [
        (Half(6, 16), torch.ones(3, 6), "8 .* declares 16"),
        (HalfConv(2, 6, 1), torch.ones(3, 2, 4, 4), "3 .* declares 6"),
    ],
)
def test_an_output_narrower_than_declared_is_refused(module, inputs, said):
    net = nn.Sequential(module)
    with pytest.raises(nc.NeuralcovError, match=rf"layer '0' gave {said}: a part of a layer .* layers='!0'"):
        nc.Coverage(net, [nc.NC(0.5)]).update(inputs)


def test_modules_of_other_kinds_may_give_what_they_like():
    class Vision(nn.Module):
        embed_dim = 768

        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(x)

    coverage = nc.Coverage(nn.Sequential(Vision()), [nc.NC(0.5)], layers=["0"])
    coverage.update(torch.eye(4))
    assert coverage.layout.neurons == 2

"""Two processes of gloo that share an evaluation have the values of one."""

import json
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
from torch import nn

from tests.integrations.parts import assessed, batches, network
from tests.integrations.ranks import CRITERIA, EXACT, TRAINING

ROOT = Path(__file__).parents[2]


def run(name, folder):
    """What each of two ranks told."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.integrations.ranks", name, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["lightning", "ignite", "torchmetrics", "torchmetrics_empty", "huggingface"])
def test_two_ranks_are_as_one(name, tmp_path):
    first, second = run(name, tmp_path)
    metrics = [{k: v for k, v in rank["metrics"].items() if "loss" not in k} for rank in (first, second)]
    assert metrics[0] == metrics[1]
    assert {**first, "metrics": 0} == {**second, "metrics": 0}
    # LCC's directions are drawn by the names of layers.
    model = nn.Sequential(OrderedDict(net=network())) if name in ("lightning", "huggingface") else network()
    expected = assessed(model, CRITERIA, batches(), TRAINING)
    assert first["inputs"] == expected.inputs == 60
    assert first["accuracy"] == expected.sanity().accuracy
    assert first["hooks"] == 0
    values = expected.values()
    exact = [criterion.name for criterion in EXACT]
    assert {name: first["values"][name] for name in exact} == {name: values[name] for name in exact}
    # Its moments are sums of floating-point numbers, of other batches and in another order.
    assert first["values"]["NLC(rule=all)"] == pytest.approx(values["NLC(rule=all)"], rel=1e-6)
    assert any(key.endswith("nc_0.5") for key in metrics[0])

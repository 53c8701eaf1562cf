"""Processes and memory on a GPU: reduced states, torchrun, batches halved, campaigns of workers."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import distributed, nn

import neuralcov as nc
from tests.distributed import group_ranks as ranks
from tests.fuzz.search.test_sharing import LocalWorkers
from tests.fuzz.test_resume import same_campaign

# The same can be tried without one, by hand.
DEVICE = os.environ.get("NEURALCOV_TEST_DEVICE", "cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning"),
]


def coverage():
    cov = nc.Coverage(ranks.Net().to(DEVICE), [*ranks.EXACT, *ranks.ROUNDED])
    cov.calibrate([(inputs.to(DEVICE), labels) for inputs, labels in ranks.TRAINING])
    return cov


def on_device(batches):
    return [(inputs.to(DEVICE), labels.to(DEVICE)) for inputs, labels in batches]


def work(rank, size, folder):
    """Two processes on one GPU, whose states travel by gloo."""
    warnings.simplefilter("ignore")
    ranks.join(folder, rank, size)
    found = {}
    for sync in ("end", "step"):
        cov = coverage()
        cov.assess(on_device(ranks.SUITE[rank::size]), group=distributed.group.WORLD, sync=sync)
        found[sync] = ranks.told(cov)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


def test_two_processes_on_one_device_are_one_suite(tmp_path):
    found = ranks.spawned(work, 2, tmp_path)
    alone = coverage()
    alone.assess(on_device(ranks.SUITE))
    whole = alone.values()
    for sync in ("end", "step"):
        assert found[0][sync]["states"] == found[1][sync]["states"]
        assert found[0][sync]["inputs"] == alone.inputs == 59
        for criterion in ranks.EXACT:
            assert found[0][sync]["values"][criterion.name] == whole[criterion.name], (sync, criterion.name)
        for criterion in ranks.ROUNDED:
            expected = pytest.approx(whole[criterion.name], rel=1e-6 if sync == "step" else 1e-12, abs=0)
            assert found[0][sync]["values"][criterion.name] == expected, (sync, criterion.name)


def test_torchrun_shares_the_suite_on_one_device(tmp_path):
    torch.manual_seed(0)
    root = Path(__file__).parents[2]
    measure = [
        *("-m", "neuralcov", "measure", "demo:digits", "--data", "demo:digits:test", "--criterion", "nc:0.5"),
        *(
            "--criterion",
            "tknc:2",
            "--criterion",
            "nlc(rule=all)",
            "--device",
            "cuda:0" if DEVICE == "cuda" else DEVICE,
        ),
    ]
    from safetensors.torch import save_file

    from neuralcov.sources.models import load_model

    weights = tmp_path / "w.safetensors"
    save_file(load_model("demo:digits", None, "cpu").state_dict(), weights)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    values = []
    for start in ([], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]):
        to = tmp_path / f"{len(values)}.json"
        command = [sys.executable, *start, *measure, "--weights", str(weights), "--json", str(to)]
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        values.append(json.loads(to.read_text())["values"])
    assert values[0]["NC(0.5)"] == values[1]["NC(0.5)"]
    assert values[0]["TKNC(2)"] == values[1]["TKNC(2)"]
    assert values[0]["NLC(rule=all)"] == pytest.approx(values[1]["NLC(rule=all)"], rel=1e-12)


class Wide(nn.Module):
    """Takes 64 MiB an input for a moment."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.out = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x):
        room = torch.ones(len(x), 1 << 24, device=x.device)
        return self.out(torch.relu(self.fc(x))) * room[:, :1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="limits the memory of a GPU")
def test_memory_that_gives_out_halves_the_batch():
    """By a limit on this process, the real error of the allocator."""
    total = torch.cuda.get_device_properties(0).total_memory
    free, _ = torch.cuda.mem_get_info()
    data, labels = torch.randn(96, 16, device="cuda"), torch.arange(96, device="cuda") % 4
    criteria = [nc.NC(0.5), nc.TKNC(2), nc.LCC(), nc.NLC(rule="all")]

    def measured(batch):
        cov = nc.Coverage(Wide().cuda(), criteria)
        cov.calibrate([(part, labels[: len(part)]) for part in data.split(8)])
        cov.assess([(data[at : at + batch], labels[at : at + batch]) for at in range(0, 96, batch)])
        return cov

    torch.cuda.empty_cache()
    room = torch.cuda.memory_reserved() + (1 << 30)  # for 16 inputs
    assert free > room
    torch.cuda.set_per_process_memory_fraction(room / total)
    try:
        with pytest.warns(nc.CoverageWarning, match="out of memory with 96 inputs at once"):
            found = measured(96)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    expected = measured(8)
    assert found.inputs == expected.inputs == 96
    for name in ("NC(0.5)", "TKNC(2)"):
        assert found.values()[name] == expected.values()[name]
    assert found.values()["NLC(rule=all)"] == pytest.approx(expected.values()["NLC(rule=all)"], rel=1e-5)


def fuzzer(folder=None):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 4)).eval().to(DEVICE)
    seeds = (torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(1)) * 255).byte()
    criteria = [nc.TKNC(2), nc.NC(0.3)]
    return nc.Fuzzer(nc.Coverage(net, criteria), seeds, folder=folder, wave=32, guide="coverage")


def test_a_campaign_of_one_worker_is_one_process_and_of_three_goes_on(tmp_path):
    alone = fuzzer(tmp_path / "alone").run(iterations=64)
    one = fuzzer(tmp_path / "one").run(iterations=64, workers=LocalWorkers(fuzzer, 1))
    assert alone.values == one.values
    same_campaign(tmp_path / "alone", tmp_path / "one")
    many = fuzzer(tmp_path / "many").run(iterations=96, workers=LocalWorkers(fuzzer, 3, lost=(4,)))
    assert many.iterations == 96
    assert fuzzer(tmp_path / "many").resume(iterations=128).iterations == 128

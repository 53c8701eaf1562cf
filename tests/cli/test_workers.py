"""A suite that several processes share, shards of one, and both against one process."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file

import neuralcov as nc
from neuralcov import demo

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
CRITERIA = ("-c", "lcc", "-c", "kmnc:100", "-c", "lvc", "-c", "cc:5", "--calibrate", "demo:digits:train")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Weights that all processes have in common."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("network") / "net.safetensors"
    save_file(demo.DigitsNet().state_dict(), path)
    return path


@pytest.fixture
def measure(run, network):
    def command(*arguments):
        return run("measure", "demo:digits", "--weights", network, "--data", "demo:digits:test", *arguments)

    return command


def loaded(path):
    return nc.Coverage.load(path)


def check_same(found, whole):
    assert found.inputs == whole.inputs == 597
    for name, value in whole.values(warn=False).items():
        if name == "LVC":
            assert found.values(warn=False)[name] == pytest.approx(value, rel=1e-12)
        elif name != "CC(5)":
            assert found.values(warn=False)[name] == value


def test_local_workers_give_what_one_process_gives(measure, tmp_path):
    for name, more in (("one", ()), ("two", ("--workers", 2))):
        code, out, err = measure(*CRITERIA, "--save", tmp_path / f"{name}.ncov", "--json", tmp_path / "r.json", *more)
        assert code == 0, err
        assert "597 inputs" in out
    check_same(loaded(tmp_path / "two.ncov"), loaded(tmp_path / "one.ncov"))
    findings = json.loads((tmp_path / "r.json").read_text())["findings"]
    assert any(text.startswith("CC(5): 2 parts measured apart were merged") for text in findings)


def test_processes_of_torchrun_share_the_suite_by_themselves(measure, network, tmp_path):
    assert measure(*CRITERIA, "--save", tmp_path / "one.ncov")[0] == 0
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "neuralcov", "measure"]
    command += ["demo:digits", "--weights", str(network), "--data", "demo:digits:test", *CRITERIA]
    done = subprocess.run(
        [*command, "--save", str(tmp_path / "two.ncov")],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "MASTER_PORT": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("597 inputs") == 1
    check_same(loaded(tmp_path / "two.ncov"), loaded(tmp_path / "one.ncov"))


def test_steps_on_request(measure, tmp_path):
    more = ("-c", "nlc", "--batch-size")
    assert measure(*more, 100, "--save", tmp_path / "one.ncov")[0] == 0
    assert measure(*more, 50, "--workers", 2, "--sync", "step", "--save", tmp_path / "two.ncov")[0] == 0
    one, two = (loaded(tmp_path / f"{name}.ncov") for name in ("one", "two"))
    assert two.values()["NLC"] == pytest.approx(one.values()["NLC"], rel=1e-6)
    assert not two.findings()


def test_shards_are_combined_to_the_whole(measure, run, tmp_path):
    assert measure(*CRITERIA, "--batch-size", 40, "--save", tmp_path / "one.ncov")[0] == 0
    for number in (1, 2, 3):
        code, _, err = measure(
            *CRITERIA, "--batch-size", 40, "--shard", f"{number}/3", "--save", tmp_path / f"part-{number}.ncov"
        )
        assert code == 0, err
    # A shard that was run twice counts once.
    assert measure(*CRITERIA, "--shard", "2/3", "--batch-size", 40, "--save", tmp_path / "part-2-again.ncov")[0] == 0
    code, _, err = run("combine", tmp_path / "part-*.ncov", "-o", tmp_path / "all.ncov")
    assert code == 0, err
    assert err.count("skipped") == 1
    check_same(loaded(tmp_path / "all.ncov"), loaded(tmp_path / "one.ncov"))
    code, _, err = run("combine", tmp_path / "nothing-*.ncov", "-o", tmp_path / "all.ncov")
    assert code == 2
    assert "no file fits this pattern" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--workers", 2, "--slices", "class"), "--slices needs all inputs in one process"),
        (("--workers", 2, "--device", "meta"), "--workers starts processes on the CPU, not on meta"),
        (("--shard", "0/3"), "--shard '0/3': expected a number from 1 to 3"),
        (("--shard", "third"), "--shard 'third': expected a number and how many there are"),
        (("--sync", "never"), "--sync 'never': expected end or step"),
    ],
)
def test_what_is_refused(measure, arguments, sentence):
    code, _, err = measure("-c", "nc", *arguments)
    assert code == 2
    assert sentence in " ".join(err.split())


def test_a_worker_that_fails_is_told(run, network, tmp_path, monkeypatch):
    """The second batch, which is the second worker's, breaks; so the whole command ends with a sentence."""
    (tmp_path / "breaking.py").write_text(
        textwrap.dedent(
            """
            import torch

            def data():
                yield torch.zeros(4, 1, 8, 8)
                yield torch.zeros(4, 3, 8, 8)
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, _, err = run(
        "measure", "demo:digits", "--weights", network, "--data", "breaking:data", "-c", "nc", "--workers", 2
    )
    assert code == 4
    assert "rank 1 failed:" in err


def test_a_shuffled_loader_has_no_shards():
    from neuralcov.sources.shards import Shard

    loader = torch.utils.data.DataLoader(torch.zeros(4, 2), shuffle=True)
    with pytest.raises(nc.NeuralcovError, match="another order every time"):
        Shard(0, 2).of(loader)
    ordered = torch.utils.data.DataLoader(torch.arange(7.0), batch_size=2)
    assert [batch.tolist() for batch in Shard(1, 3).of(ordered)] == [[2, 3]]
    assert [batch.tolist() for batch in Shard(0, 3).of(ordered)] == [[0, 1], [6]]

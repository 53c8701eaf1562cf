"""Run what the page on large suites shows: the shell loop, the functions for engines; programs have their options."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import neuralcov as nc
from neuralcov import demo
from neuralcov.sources.shards import Shard

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
PROGRAM = re.compile(
    r"python (?:-m )?((?:tests/|tests\.|benchmarks)[\w./]*)((?:\s+--?[\w-]+(?:\s+(?!python\b)[\w./]+)*)*)"
)
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def block(start):
    """Return the block of the page that holds a text."""
    return next(text for text in re.findall(r"```\w*\n(.*?)```", PAGE, re.DOTALL) if start in text)


def network():
    return demo.train_digits(epochs=1, progress=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the weights and the calibration that the page takes for granted."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("scale")
    save_file(network().state_dict(), folder / "net.safetensors")
    measure = (
        "neuralcov measure demo:digits --weights net.safetensors --data demo:digits:test --calibrate demo:digits:train"
    )
    ended = sh(f"{measure} --save whole.ncov --save-calibration train.ncal", folder)
    assert ended.returncode == 0, ended.stderr
    return folder


def sh(text, place):
    """Run lines of a shell; ``neuralcov`` is that of these tests."""
    own = f'neuralcov() {{ first=$1; shift; "{sys.executable}" -m neuralcov $first "$@"; }}\nset -e\n'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(["bash", "-c", own + text], cwd=place, env=environment, capture_output=True, text=True)


def test_the_loop_over_shards_is_one_run(place):
    loop = block("for i in 1 2 3 4")
    ended = sh(loop, place)
    assert ended.returncode == 0, ended.stderr
    combined, whole = (nc.Coverage.load(place / name) for name in ("suite.ncov", "whole.ncov"))
    assert combined.inputs == whole.inputs == 597
    assert combined.values() == whole.values()
    # A shard that ran twice counts once.
    ended = sh("cp part-1.ncov part-5.ncov; " + loop.splitlines()[-1], place)
    assert (ended.returncode, nc.Coverage.load(place / "suite.ncov").inputs) == (0, 597), ended.stderr


class Client:
    """Stands for Dask's: what is submitted is done at once, results of others are taken where they are named."""

    def __init__(self, result=None):
        self._result = result

    def submit(self, function, *given):
        return Client(function(*(each.result() if isinstance(each, Client) else each for each in given)))

    def result(self):
        return self._result


def test_the_functions_for_dask_and_spark(place, monkeypatch):
    monkeypatch.chdir(place)
    text = block("client.submit").replace("64", "5")
    assert "from neuralcov.sources.shards import Shard" in text
    names = {
        "neuralcov": nc,
        "Shard": Shard,
        "client": Client(),
        "model": network,
        "loader": lambda: demo.digits("test").batches(),
    }
    exec(text, names)
    assert names["suite"].inputs == 597
    assert "treeReduce(merge)" in PAGE


def test_recipes_for_clusters_are_well_formed():
    job = yaml.safe_load(block("kind: Job"))
    assert job["spec"]["completionMode"] == "Indexed"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert f"/{job['spec']['completions']} " in container["command"][-1]
    array = block("#SBATCH --array")
    assert array.startswith("#!/bin/bash\n#SBATCH --array=1-64\n")
    assert "$SLURM_ARRAY_TASK_ID/64" in array
    for text in (array, block("sbatch --parsable"), container["command"][-1]):
        assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


@pytest.mark.parametrize("name", ["scale", "reliability", "listening", "performance", "fuzzing"])
def test_programs_that_pages_name_have_these_options(name):
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    found = PROGRAM.findall(page)
    assert found
    for program, given in found:
        path = ROOT / (program if program.endswith(".py") else program.replace(".", "/"))
        files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        source = "".join(file.read_text() for file in files)
        assert "__main__" in source or (path / "__main__.py").is_file(), program
        for option in re.findall(r"--[\w-]+", given):
            assert json.dumps(option) in source, (program, option)

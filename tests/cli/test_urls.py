"""Commands take URLs wherever they take a state, a calibration, a table or JSON."""

import json

import fsspec
import pytest
from safetensors.torch import save_file

import neuralcov as nc

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


@pytest.fixture
def measure(digits_net, tmp_path_factory):
    weights = tmp_path_factory.mktemp("weights") / "net.safetensors"
    save_file(digits_net.state_dict(), weights)
    return "measure", "demo:digits", "--weights", weights, "--data", "demo:digits"


@pytest.fixture(autouse=True)
def memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = fsspec.filesystem("memory")
    found.store.clear()
    yield found
    assert not list(tmp_path.iterdir()), "a folder was made of a URL"


def test_a_life_in_a_bucket(run, measure, memory):
    code, _, err = run(*measure, "-c", "lcc", "--calibrate", "demo:digits", "--save", "memory://b/a.ncov",
                       "--save-calibration", "memory://b/a.ncal", "--json", "memory://b/a.json",
                       "--evidence", "memory://b/evidence.json", "--per-input", "memory://b/a.csv")  # fmt: skip
    assert code == 0, err
    assert json.loads(memory.cat("/b/a.json"))["inputs"] == 597
    assert memory.cat("/b/a.csv").startswith(b"id,")
    again = run(*measure, "-c", "lcc", "--calibrate", "memory://b/a.ncal", "--save", "memory://b/b.ncov")
    assert again[0] == 0, again[2]
    first, second = (nc.Coverage.load(f"memory://b/{name}.ncov").values() for name in "ab")
    assert first == second
    assert run("show", "memory://b/a.ncov", "--json", "memory://b/show.json")[0] == 0
    assert json.loads(memory.cat("/b/show.json"))["suite"] == "memory://b/a.ncov"
    code, out, _ = run("gate", "memory://b/a.ncov", "--min", "LCC.relative=0.5", "--baseline", "memory://b/b.ncov",
                       "--max-drop", "5%", "--json", "memory://b/gate.json")  # fmt: skip
    assert (code, "met" in out) == (0, True)
    assert json.loads(memory.cat("/b/gate.json"))["met"]
    code, _, err = run("compare", "memory://b/a.ncov", "memory://b/b.ncov", "--json", "memory://b/compare.json")
    assert code == 0, err
    code, _, err = run("combine", "memory://b/a.ncov", "memory://b/b.ncov", "-o", "memory://b/all.ncov",
                       "--allow-overlap")  # fmt: skip
    assert code == 0, err
    assert memory.exists("/b/all.ncov")
    weights = measure[measure.index("--weights") + 1]
    code, out, err = run("verify", "memory://b/evidence.json", "--trust", "--weights", weights,
                         "--json", "memory://b/verify.json")  # fmt: skip
    assert code == 0, err


def test_shards_in_a_bucket_are_combined_by_a_pattern(run, measure, memory):
    for number in (2, 1):
        place = f"memory://shards/part-{number}.ncov"
        assert run(*measure, "-c", "nc:0.5", "--shard", f"{number}/2", "--save", place)[0] == 0
    code, out, err = run("combine", "memory://shards/part-*.ncov", "-o", "memory://all.ncov")
    assert code == 0, err
    assert "2 files" in out
    assert nc.Coverage.load("memory://all.ncov").inputs == 597
    code, _, err = run("combine", "memory://shards/other-*.ncov", "-o", "memory://all.ncov")
    assert (code, "memory://shards/other-*.ncov: no file fits this pattern" in err) == (2, True)


def test_a_baseline_of_a_policy(run, measure, memory, tmp_path):
    assert run(*measure, "-c", "nc:0.5", "--save", "memory://a.ncov")[0] == 0
    (tmp_path / "policy.toml").write_text('baseline = "memory://a.ncov"\nmax_drop = "5%"\n')
    code, out, err = run("gate", "memory://a.ncov", "--policy", "policy.toml")
    (tmp_path / "policy.toml").unlink()
    assert code == 0, (out, err)


def test_a_ranked_queue(run, memory):
    code, _, err = run("rank", "demo:digits", "--data", "demo:digits", "--calibrate", "demo:digits",
                       "-o", "memory://queue.csv", "--show", "0")  # fmt: skip
    assert code == 0, err
    assert memory.cat("/queue.csv").startswith(b"rank,id")


@pytest.mark.parametrize("place", ["s3://bucket/a.ncov", "s3:/bucket/a.ncov"])
def test_what_cannot_be_reached_is_one_sentence(run, place):
    said = {"s3://bucket/a.ncov": "pip install s3fs", "s3:/bucket/a.ncov": "two slashes"}
    for arguments in (("show", place), ("combine", place, "-o", "x.ncov"), ("gate", place, "--min", "NC(0.5)=1")):
        code, _, err = run(*arguments)
        assert (code, said[place] in err, err.count("\n")) == (2, True, 1)
    code, _, err = run("measure", "demo:digits", "--data", "demo:digits", "-c", "nc:0.5", "--save", place)
    assert (code, said[place] in err) == (2, True)


def test_what_must_lie_here(run):
    code, _, err = run("rank", "demo:digits", "--data", "demo:digits", "--calibrate", "demo:digits",
                       "--work", "memory://work", "--show", "0")  # fmt: skip
    assert (code, "expected a path on this machine" in err) == (2, True)
    code, _, err = run("fuzz", "run", "demo:digits", "--data", "demo:digits", "-o", "s3://bucket/run")
    assert (code, "two slashes" in err) == (2, True)

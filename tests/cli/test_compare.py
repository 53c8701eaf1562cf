"""Two suites, the field and a suite, one suite on two networks."""

import json

import pytest
import torch

import neuralcov as nc
from neuralcov import demo
from tests.cli.compared_files import chunks, make_elsewhere, make_files

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    return make_elsewhere(tmp_path, monkeypatch)


def verdict_of(out, figure):
    row = next(line for line in out.splitlines() if f" {figure} " in line)
    return [cell.strip() for cell in row.split("│")][3]


def test_compare(run, files, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("compare", files / "test.ncov", files / "half.ncov", "--json", tmp_path / "c.json")
    assert code == 0
    assert "597 against 300 inputs" in out
    assert max(map(len, out.splitlines())) <= 80
    assert (verdict_of(out, "LCC"), verdict_of(out, "LCC.relative"), verdict_of(out, "KMNC(100)")) == ("=", "=", "?")
    rows = {row["name"]: row for row in json.loads((tmp_path / "c.json").read_text())["rows"]}
    rarefied = nc.Coverage.load(files / "test.ncov").rarefied(300)["LCC"][0]
    assert (rows["LCC"]["first"], rows["LCC"]["why"]) == (rarefied, "at 300 inputs")
    code, out, _ = run("compare", files / "test.ncov", files / "copies.ncov")
    assert (code, verdict_of(out, "LCC.relative")) == (0, ">")
    code, out, _ = run("compare", files / "test.ncov", files / "retrained.ncov")
    assert out.startswith("another model and calibration: only figures that are relative")
    assert (verdict_of(out, "LCC.relative"), verdict_of(out, "SNAC")) == ("=", "?")
    code, _, err = run("compare", files / "test.ncov", files / "other.ncov")
    assert (code, "no criterion in common" in err) == (2, True)


def test_what_the_field_shows_and_the_suite_lacks(run, files, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("compare", files / "test.ncov", files / "half.ncov", "--lacks", "--json", tmp_path / "l.json")
    assert (code, "kinds that test.ncov shows and half.ncov lacks" in out) == (0, True)
    assert max(map(len, out.splitlines())) <= 80
    rows = json.loads((tmp_path / "l.json").read_text())["rows"]
    assert [row["share"] for row in rows] == sorted((row["share"] for row in rows), reverse=True)
    # Input by input: how many have a kind that none of the first 300 has.
    cov = nc.Coverage.load(files / "test.ncov", demo.train_digits(progress=False))
    x = demo.digits("test").pixels()
    kinds = cov.criteria[0].kinds(cov.run(x)[0])[..., 0]
    for layer, column in zip(cov.layout, kinds.T, strict=True):
        lacked = ~torch.isin(column[300:], column[:300])
        row = next(row for row in rows if row["layer"] == layer)
        assert row["inputs"] == int(lacked.sum())
        assert row["kinds"] == len(column[300:][lacked].unique())
        assert max(row["largest"]) == int(column[300:][lacked].unique(return_counts=True)[1].max())
    # The kinds of the last layer again, with the first inputs that show them.
    last = column.tolist()
    lacked = [row for row in range(300, len(last)) if last[row] not in last[:300]]
    groups = {kind: [row for row in lacked if last[row] == kind] for kind in (last[row] for row in lacked)}
    collect = json.loads((tmp_path / "l.json").read_text())["collect"]
    assert [kind["inputs"] for kind in collect] == sorted(map(len, groups.values()), reverse=True)
    decided = cov.model(x).argmax(1).tolist()
    for kind in collect:
        rows = groups[last[int(kind["ids"][0])]]
        assert [int(name) for name in kind["ids"]] == rows[:5]
        assert kind["prediction"] == decided[rows[0]]
    assert "to collect: kinds of the last layer" in out
    code, out, err = run("compare", files / "test.ncov", files / "copies.ncov", "--lacks")
    assert (code, "to collect" in out, "measure without --no-inputs" in " ".join(err.split())) == (0, False, True)
    code, _, err = run("compare", files / "retrained.ncov", files / "test.ncov", "--lacks")
    assert (code, "calibrations differ" in " ".join(err.split())) == (2, True)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """The test set on three networks, one of them wider, each with its state and its table of inputs."""
    folder = tmp_path_factory.mktemp("networks")
    test = demo.digits("test")
    wide = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 30), torch.nn.ReLU(), torch.nn.Linear(30, 10))
    nets = {"a": demo.train_digits(progress=False), "b": demo.train_digits(seed=3, progress=False), "wide": wide}
    for name, net in nets.items():
        cov = nc.Coverage(net, [nc.LCC(), nc.SNAC()])
        cov.calibrate(demo.digits("train").batches())
        cov.assess(chunks(test.pixels(), test.labels), per_input=True)
        cov.save(folder / f"{name}.ncov")
        cov.per_input().write(folder / f"{name}.{'jsonl' if name == 'wide' else 'csv'}")
    return folder, nets


def test_one_suite_on_two_networks(run, networks, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder, nets = networks
    states = folder / "a.ncov", folder / "b.ncov"
    tables = "--inputs", folder / "a.csv", folder / "b.csv"
    code, out, err = run("compare", "--models", *states, *tables, "--json", tmp_path / "m.json")
    assert code == 0
    assert out.startswith("another model and calibration")
    assert "not known to be the same inputs" not in err
    # Relative figures only.
    assert "LCC.relative" in out
    assert "SNAC" not in out
    assert max(len(line) for line in out.splitlines() if "│" in line) <= 80
    found = json.loads((tmp_path / "m.json").read_text())["changes"]
    test = demo.digits("test")
    with torch.no_grad():
        first, second = (nets[name](test.pixels()).argmax(1) for name in "ab")
    assert found["inputs"] == found["decided"] == len(test.labels)
    assert found["otherwise"] == int((first != second).sum())
    answers = found["answers"]
    assert answers["first_only"] == int(((first == test.labels) & (second != test.labels)).sum())
    assert answers["both"] == int(((first == test.labels) & (second == test.labels)).sum())
    assert 0 < found["groupings"][0]["agreement"] < 1
    assert [grouping["column"] for grouping in found["groupings"]] == ["LCC.kind", "LCC.alike"]
    code, out, _ = run(
        "compare", "--models", folder / "a.ncov", folder / "a.ncov", "--inputs", *(2 * [folder / "a.csv"])
    )
    assert (code, "0 of 597 inputs (0 %) are decided otherwise" in out, "agreement 1.000" in out) == (0, True, True)


def test_networks_may_have_other_layers(run, networks):
    folder, _ = networks
    states = folder / "a.ncov", folder / "wide.ncov"
    code, out, err = run("compare", "--models", *states)
    assert (code, "LCC.relative" in out, "--per-input" in err) == (0, True, True)
    code, out, _ = run("compare", "--models", *states, "--inputs", folder / "a.csv", folder / "wide.jsonl")
    assert (code, "of 597 inputs (" in out, "> " in out) == (0, True, True)
    assert run("compare", *states)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--inputs", "a.csv", "b.csv"], "--inputs goes with --models"),
        (["--models", "--lacks"], "give one of them"),
        (["--models", "--inputs", "a.csv", "b.csv"], "there is no such file"),
        (["--models", "--inputs", "a.txt", "b.csv"], "expected a table of inputs"),
    ],
)
def test_wrong_use_of_models(run, networks, arguments, said):
    code, _, err = run("compare", networks[0] / "a.ncov", networks[0] / "b.ncov", *arguments)
    assert (code, said in " ".join(err.split())) == (2, True)


def test_other_inputs_are_told(run, networks, files):
    code, _, err = run("compare", "--models", networks[0] / "a.ncov", files / "half.ncov")
    assert (code, "criteria differ" in err) == (0, False)
    assert "these are not known to be the same inputs" in " ".join(err.split())

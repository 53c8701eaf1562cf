"""``measure --evidence``, ``gate --evidence`` and ``verify`` as a person types them, on a model of the person's own."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.results.evidence import read_evidence

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")

MODEL = """
import torch
from torch import nn

CALLED = []

def build(seed=0):
    CALLED.append(seed)
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
"""
DATA = "--data", "npz:test.npz", "--calibrate", "npz:train.npz"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model and data in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_net.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    for name, size in (("train", 200), ("test", 90), ("other", 90)):
        x = rng.standard_normal((size, 6)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    test = np.load(tmp_path / "test.npz")
    np.savez(tmp_path / "reversed.npz", x=test["x"][::-1], y=test["y"][::-1])
    yield tmp_path
    sys.modules.pop("my_net", None)


def measured(run, *more):
    code, _, err = run("measure", "my_net:build", *DATA, "--batch-size", "32", "--evidence", "e.json", *more)
    assert code == 0, err
    return json.loads(open("e.json").read())


def test_evidence_says_what_was_measured_and_how(run, folder):
    content = measured(run, "-c", "LCC", "-c", "NC(0.5)", "--layers", "0|2", "--save", "s.ncov", "--tolerance", "2%")
    read = read_evidence((folder / "e.json").read_bytes(), "e.json")
    assert read.sha256 == content["sha256"]
    procedure, identity = content["procedure"], content["identity"]
    assert [(c["name"], c["definition"]) for c in procedure["criteria"]] == [
        ("LCC", nc.LCC.definition),
        ("NC(0.5)", nc.NC.definition),
    ]
    assert procedure["criteria"][0]["parameters"]["directions"] == 8
    assert procedure["layers"] == [["0", 12], ["2", 8]]
    assert procedure["unmeasured"]["share"] == pytest.approx(27 / (84 + 104 + 27))
    assert (procedure["batch_size"], procedure["seed"], procedure["device"]["name"]) == (32, None, "cpu")
    assert procedure["precision"]["parameters"] == ["float32"]
    assert procedure["command"][:3] == ["neuralcov", "measure", "my_net:build"]
    assert content["software"]["torch"] == torch.__version__
    assert content["tolerance"] == {"relative": 0.02, "absolute": 1e-9}
    sys.modules.pop("my_net", None)
    import my_net

    cov = nc.Coverage(my_net.build(), [nc.LCC(), nc.NC(0.5)], layers="0|2")
    train, test = (np.load(f"{name}.npz") for name in ("train", "test"))
    pairs = [(torch.from_numpy(part["x"]), torch.from_numpy(part["y"])) for part in (train, test)]
    cov.calibrate([*zip(*(part.split(32) for part in pairs[0]), strict=True)])
    cov.assess([pairs[1]])
    assert identity["model"]["id"] == cov.provenance()["model"]["id"]
    assert identity["calibration"]["learnt"] == cov.calibration_ids()
    assert content["results"]["values"] == cov.values()
    # A state file keeps how it was measured, as long as nothing is added.
    kept = nc.Coverage.load("s.ncov")
    assert kept.evidence().procedure == read.procedure
    assert cov.evidence().procedure["order"] == procedure["order"]


def test_verify_in_all_directions(run, folder):
    measured(run)
    code, out, _ = run("verify", "e.json", "my_net:build", *DATA)
    assert (code, "compared to the bit" in out, "agrees: all" in out) == (0, True, True), out
    code, out, _ = run("verify", "e.json", "my_net:build", *DATA, "--batch-size", "90", "--json", "v.json")
    assert (code, "batch size 32 in the file, 90 here" in out) == (0, True)
    assert json.loads((folder / "v.json").read_text())["exact"] is False
    code, out, _ = run("verify", "e.json", "my_net:build", "--data", "npz:reversed.npz", *DATA[2:])
    assert (code, "order of the inputs" in out) == (0, True)
    for changed, said in (
        (("my_net:build(seed=1)", *DATA), "was measured on weights"),
        (("my_net:build", "--data", "npz:other.npz", *DATA[2:]), "is about the inputs"),
        (("my_net:build", *DATA[:2], "--calibrate", "npz:other.npz"), "training data that the file was made with"),
        (("my_net:build", *DATA, "--init", "npz:train.npz"), "was measured without"),
        (("my_net:build", *DATA[:2]), "names the calibrate npz:train.npz"),
    ):
        code, _, err = run("verify", "e.json", *changed)
        assert (code, said in " ".join(err.split())) == (2, True), err


def test_a_number_that_was_changed_differs(run, folder):
    measured(run, "-c", "NC(0.5)")
    stated = read_evidence((folder / "e.json").read_bytes(), "e.json")
    values = {name: value + 1e-12 for name, value in stated.results["values"].items()}
    # Whoever changes a number can make the digest anew: that is what measuring again is for.
    dataclasses.replace(stated, results={**stated.results, "values": values}).write("f.json")
    code, out, _ = run("verify", "f.json", "my_net:build", *DATA)
    assert (code, "DIFFERS: NC(0.5) is" in out) == (1, True)
    (folder / "g.json").write_text((folder / "e.json").read_text().replace('"batch_size":32', '"batch_size":31', 1))
    code, _, err = run("verify", "g.json", "my_net:build", *DATA)
    assert (code, "it was changed" in err) == (2, True)


def test_names_in_a_file_are_used_only_if_trusted(run, folder):
    measured(run)
    import my_net

    my_net.CALLED.clear()
    code, _, err = run("verify", "e.json")
    assert (code, "names the model my_net:build" in err, my_net.CALLED) == (2, True, [])
    code, out, _ = run("verify", "e.json", "--trust")
    assert (code, "compared to the bit" in out, my_net.CALLED) == (0, True, [0])


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.pop("names"),
        lambda p: p["names"].update(batch_size="2"),
        lambda p: p["names"].update(batch_size=0),
        lambda p: p["names"].update(surprise=1),
        lambda p: p.update(names=[]),
        lambda p: p.pop("criteria"),
        lambda p: p.update(criteria=[{"class": "NC"}]),
        lambda p: p["criteria"][0].update({"class": "os.system"}),
        lambda p: p["criteria"][0].update(definition=99),
        lambda p: p["criteria"][0].update(parameters={"nothing": 1}),
    ],
)
def test_a_file_that_does_not_say_how_ends_in_one_sentence(run, folder, change):
    measured(run, "-c", "NC(0.5)")
    stated = read_evidence((folder / "e.json").read_bytes(), "e.json")
    procedure = json.loads(json.dumps(stated.procedure))
    change(procedure)
    dataclasses.replace(stated, procedure=procedure).write("f.json")
    code, _, err = run("verify", "f.json", "my_net:build", *DATA)
    assert (code, err.count("neuralcov:")) == (2, 1), err


def test_evidence_of_a_gate(run, folder):
    measured(run, "-c", "NC(0.5)", "-c", "LCC", "--save", "s.ncov")
    (folder / "policy.toml").write_text(
        '[min]\n"NC(0.5)" = { limit = "1%", requirement = "SR-12", reason = "more than nothing" }\ninputs = 50\n'
        '[max]\n"NC(0.5)" = { limit = 0.001, requirement = "SR-13" }\n'
        '[allow_alarm]\naccuracy = "an untrained network"\n'
    )
    code, out, _ = run("gate", "s.ncov", "--policy", "policy.toml", "--evidence", "g.json")
    assert (code, "asked for ≥ 0.01 [SR-12]" in out) == (1, True)
    content = json.loads((folder / "g.json").read_text())
    rows = {(row["asks"], row["figure"]): row for row in content["thresholds"]}
    assert rows["min", "NC(0.5)"]["requirement"] == "SR-12"
    assert rows["min", "NC(0.5)"]["reason"] == "more than nothing"
    assert rows["allow_alarm", "accuracy"]["reason"] == "an untrained network"
    assert content["verdict"]["met"] is False
    assert content["procedure"]["batch_size"] == 32
    assert content["identity"]["file"] is not None
    code, out, _ = run("verify", "g.json", "my_net:build", *DATA)
    assert (code, "compared to the bit" in out) == (0, True), out
    (folder / "bad.toml").write_text('[min]\n"NC(0.5)" = { requirement = "SR-12" }\n')
    code, _, err = run("gate", "s.ncov", "--policy", "bad.toml")
    assert (code, "expected a number, or limit with requirement and reason" in " ".join(err.split())) == (2, True)


def test_evidence_of_gates_of_places(run, folder):
    measured(run, "-c", "LCC", "-c", "SNAC", "--slices", "class", "--save", "s.ncov")
    saved = nc.Coverage.load("s.ncov")
    (table,) = saved.by_slice()
    layer = saved.by_layer()[1]
    limit = layer.values["SNAC"]
    (folder / "policy.toml").write_text(
        f'[[gate]]\nfigure = "SNAC"\nlayer = "2"\nmin = {limit!r}\nrequirement = "SR-1"\nreason = "as before"\n'
        '[[gate]]\nfigure = "inputs"\nclass = "*"\nmin = 10\nrequirement = "SR-2"\n'
        f'[[gate]]\nfigure = "SNAC"\nslice = "class=1"\nmax = {table["1"].alone["SNAC"] / 2!r}\n'
        '[allow_alarm]\naccuracy = "an untrained network"\n'
        '[[waivers]]\ngate = "SNAC"\nslice = "class=1"\nreason = "later"\nowner = "Kim"\nexpires = 2999-01-31\n'
    )
    code, out, _ = run("gate", "s.ncov", "--policy", "policy.toml", "--evidence", "g.json")
    assert code == 0, out
    content = json.loads((folder / "g.json").read_text())
    rows = [row for row in content["thresholds"] if row["place"] is not None]
    assert [(row["figure"], row["place"], row["limit"], row["requirement"], row["reason"]) for row in rows] == [
        ("SNAC", ["layer", "2"], limit, "SR-1", "as before"),
        ("inputs", ["class", "*"], 10, "SR-2", None),
        ("SNAC", ["slice", "class=1"], table["1"].alone["SNAC"] / 2, None, None),
    ]
    waived = [row for row in content["thresholds"] if row["asks"] == "waive"]
    assert [(row["figure"], row["reason"]) for row in waived] == [
        ("SNAC [slice class=1]", "later (Kim, until 2999-01-31)")
    ]
    checks = {check["name"]: check for check in content["verdict"]["checks"]}
    assert checks["SNAC [layer 2]"]["requirement"] == "SR-1"
    assert (checks["SNAC [slice class=1]"]["met"], checks["SNAC [slice class=1]"]["waived"] is not None) == (
        False,
        True,
    )
    code, out, _ = run("verify", "g.json", "my_net:build", *DATA, "--json", "v.json")
    assert (code, "compared to the bit" in out) == (0, True), out
    figures = {figure["name"]: figure for figure in json.loads((folder / "v.json").read_text())["figures"]}
    for name, word in (
        (f"SNAC [layer 2] ≥ {limit:g}", "met"),
        ("inputs [class 0] ≥ 10", "met"),
        ("inputs [class 1] ≥ 10", "met"),
        (f"SNAC [slice class=1] ≤ {table['1'].alone['SNAC'] / 2:g}", "not met"),
    ):
        assert (figures[name]["stated"], figures[name]["found"]) == (word, word)
    assert figures["slices.class.rows.1.alone.SNAC"]["stated"] == table["1"].alone["SNAC"]
    # A verdict that was changed is found, though every number of the measurement is as it was.
    stated = read_evidence((folder / "g.json").read_bytes(), "g.json")
    verdict = json.loads(json.dumps(stated.verdict))
    for check in verdict["checks"]:
        check["met"] = not check["name"].startswith("alarm:")
    verdict["met"] = all(check["met"] or check["waived"] is not None for check in verdict["checks"])
    dataclasses.replace(stated, verdict=verdict).write("f.json")
    code, out, _ = run("verify", "f.json", "my_net:build", *DATA)
    assert (code, "DIFFERS: SNAC [slice class=1]" in out) == (1, True)


def test_held_out_references_are_part_of_it(run, folder):
    content = measured(run, "-c", "KMNC(10)", "--held-out", "0.4", "--save", "s.ncov")
    reference = content["results"]["references"]["KMNC(10)"]
    assert reference["inputs"] == min(90, reference["sizes"][-1])
    code, out, _ = run("show", "s.ncov")
    assert (code, "held-out training inputs" in " ".join(out.replace("│", " ").split())) == (0, True)
    # A number calls nothing, and so is taken from the file.
    code, out, _ = run("verify", "e.json", "my_net:build", *DATA)
    assert (code, "compared to the bit" in out) == (0, True), out
    code, _, err = run("verify", "e.json", "my_net:build", *DATA, "--held-out", "0.2")
    assert (code, "training data that the file was made with" in err) == (2, True), err
    stated = read_evidence((folder / "e.json").read_bytes(), "e.json")
    changed = json.loads(json.dumps(stated.results))
    changed["references"]["KMNC(10)"]["value"] += 1e-12
    dataclasses.replace(stated, results=changed).write("f.json")
    assert run("verify", "f.json", "my_net:build", *DATA)[0] == 1
    measured(run, "-c", "KMNC(10)", "--held-out", "npz:other.npz")
    code, _, err = run("verify", "e.json", "my_net:build", *DATA)
    assert (code, "names the held_out npz:other.npz; give it as --held-out" in err) == (2, True), err
    assert run("verify", "e.json", "my_net:build", *DATA, "--held-out", "npz:other.npz")[0] == 0
    run("measure", "my_net:build", *DATA, "--save-calibration", "t.ncal", "-c", "SNAC")
    for arguments in (["--calibrate", "t.ncal"], []):
        code, _, err = run("measure", "my_net:build", *DATA[:2], *arguments, "-c", "NC", "--held-out", "0.1")
        assert (code, "--held-out goes with --calibrate DATA" in err) == (2, True)


def test_no_folder_of_this_machine_is_told(run, folder):
    paths = [f"npz:{folder / name}.npz" for name in ("test", "train")]
    elsewhere = folder / "deep" / "secret"
    elsewhere.mkdir(parents=True)
    (elsewhere / "other.npz").write_bytes((folder / "other.npz").read_bytes())
    code, _, err = run("measure", "my_net:build", "--data", f"npz:{elsewhere}/other.npz", "--calibrate", paths[1],
                       "--evidence", folder / "e.json", "--save", folder / "s.ncov", "-c", "SNAC")  # fmt: skip
    assert code == 0, err
    for name in ("e.json", "s.ncov"):
        assert str(folder).encode() not in (folder / name).read_bytes()
    content = json.loads((folder / "e.json").read_text())
    assert content["procedure"]["names"]["calibrate"] == "npz:train.npz"
    assert content["identity"]["suite"]["name"] == "npz:deep/secret/other.npz"
    assert "--evidence" in content["procedure"]["command"]


def test_what_a_file_leaves_out_must_be_given(run, folder, monkeypatch):
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    code, _, err = run(
        "measure", "my_net:build", "--data", f"npz:{folder}/test.npz", "--evidence", "e.json", "-c", "NC"
    )
    assert code == 0, err
    assert str(folder) not in (folder / "work" / "e.json").read_text()
    code, _, err = run("verify", "e.json", "my_net:build", "--trust")
    assert (code, "names the data npz:…/test.npz, whose folder it leaves out: give it as --data" in err) == (2, True)
    assert run("verify", "e.json", "my_net:build", "--data", "npz:../test.npz")[0] == 0


def test_a_library_user_gets_evidence_too(folder):
    torch.manual_seed(0)
    cov = nc.Coverage(torch.nn.Linear(4, 3), [nc.NC(0.5)])
    with pytest.raises(nc.NeuralcovError, match="no input was observed"):
        cov.evidence()
    cov.update(torch.randn(7, 4))
    cov.note_procedure(batch_size=7, seed=0)
    made = cov.evidence()
    assert (made.procedure["batch_size"], made.procedure["seed"], made.results["inputs"]) == (7, 0, 7)
    cov.update(torch.randn(7, 4))
    # What was noted is of other inputs.
    assert cov.evidence().procedure["batch_size"] is None

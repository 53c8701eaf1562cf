"""``compare`` and ``gate`` as a person types them: words and exit codes."""

import json

import pytest
import torch

import neuralcov as nc
from neuralcov import demo

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")


def chunks(x, y):
    return [(x[i : i + 100], y[i : i + 100]) for i in range(0, len(x), 100)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """State files of the test set, of poorer suites, and of a network that was trained again."""
    folder = tmp_path_factory.mktemp("states")
    test = demo.digits("test")
    x, y = test.pixels(), test.labels
    net = demo.train_digits(progress=False)
    cov = nc.Coverage(net, [nc.LCC(), nc.KMNC(100), nc.SNAC()])
    cov.calibrate(demo.digits("train").batches())
    suites = {
        "test": (x, y),
        "half": (x[:300], y[:300]),
        "copies": (x[:10].repeat(60, 1, 1, 1) + 0.02, y[:10].repeat(60)),
        "unscaled": (16 * x, y),
    }
    for name, suite in suites.items():
        cov.reset()
        cov.assess(chunks(*suite), keep_inputs=name in ("test", "half"))
        cov.save(folder / f"{name}.ncov")
    again = nc.Coverage(demo.train_digits(seed=3, progress=False), [nc.LCC(), nc.KMNC(100), nc.SNAC()])
    again.calibrate(demo.digits("train").batches())
    again.assess(chunks(x, y))
    again.save(folder / "retrained.ncov")
    other = nc.Coverage(net, [nc.NC(0.5)])
    other.assess(chunks(x, y))
    other.save(folder / "other.ncov")
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


def test_gate_in_both_directions(run, files):
    suite = files / "test.ncov"
    code, out, _ = run("gate", suite, "--min", "LCC.relative=0.9", "--max", "LCC.off_map=20%")
    assert (code, "gate met" in out) == (0, True)
    code, out, _ = run("gate", suite, "--min", "LCC.relative=9")
    assert (code, "NOT MET: LCC.relative is 1.1" in out) == (1, True)
    base = "--baseline", suite, "--max-drop", "5%"
    assert run("gate", suite, *base)[0] == 0
    # Half of the suite is as varied; what depends on size is not judged, and that is said.
    code, out, _ = run("gate", files / "half.ncov", *base)
    assert (code, "KMNC(100): the drop below the baseline is not judged: other size" in out) == (0, True)
    assert run("gate", files / "retrained.ncov", *base)[0] == 0
    code, out, _ = run("gate", files / "copies.ncov", *base, "--allow-alarm", "duplicates=on purpose",
                       "--allow-alarm", "classes=on purpose", "--allow-alarm", "unlike=on purpose")  # fmt: skip
    assert (code, "NOT MET: LCC.relative fell by" in out) == (1, True)


def test_a_gate_is_not_met_while_an_alarm_stands(run, files):
    asked = "gate", files / "unscaled.ncov", "--min", "SNAC=0.1"
    code, out, _ = run(*asked)
    assert code == 1
    assert "NOT MET: alarm:unlike: 100 % of these inputs are unlike anything in training: is the scaling" in out
    code, out, _ = run(*asked, "--allow-alarm", "unlike=we test what happens",
                       "--allow-alarm", "scale=we test what happens")  # fmt: skip
    assert (code, "WAIVED: alarm:unlike" in out) == (0, True)
    code, _, err = run(*asked, "--allow-alarm", "unlike")
    assert (code, "expected a reason" in err) == (2, True)
    code, _, err = run(*asked, "--allow-alarm", "unlike training=on purpose")
    assert (code, "no alarm is called 'unlike training'; there are accuracy," in " ".join(err.split())) == (2, True)


def test_policies(run, files, tmp_path):
    (tmp_path / "policy.toml").write_text(
        f"""baseline = "{files / "test.ncov"}"
max_drop = "5%"
min = {{ "LCC.relative" = 9.0 }}
[allow_alarm]
classes = "a smoke test"
[[waivers]]
gate = "LCC.relative"
reason = "new camera"
owner = "Kim"
expires = 2999-01-31
"""
    )
    asked = "gate", files / "half.ncov", "--policy", tmp_path / "policy.toml"
    code, out, _ = run(*asked, "--json", tmp_path / "g.json")
    assert (code, "waived by Kim until 2999-01-31: new camera" in out) == (0, True)
    assert json.loads((tmp_path / "g.json").read_text())["met"] is True
    text = (tmp_path / "policy.toml").read_text()
    (tmp_path / "policy.toml").write_text(text.replace("2999", "2001"))
    code, out, _ = run(*asked)
    assert (code, "expired on 2001-01-31: renew or drop it" in out) == (1, True)
    for old, new, said in [
        ('owner = "Kim"\n', "", "has no owner"),
        ("expires = 2999-01-31\n", "", "no date of expiry"),
        ('gate = "LCC.relative"\n', "", "must name a gate, a layer, a class, a slice, or a gate and where"),
        ("max_drop", "max_fall", "'max_fall' is not known"),
        ('"5%"', '"few"', "'few' is no number"),
        ("[allow_alarm]", "[allow_alarm", "no TOML"),
    ]:
        (tmp_path / "policy.toml").write_text(text.replace(old, new))
        code, _, err = run(*asked)
        assert (code, said in " ".join(err.split())) == (2, True)


PLACED = """
[[gate]]
figure = "SNAC"
min = 0.01
layer = "{layer}"
[[gate]]
figure = "LCC.relative"
min = "50%"
layer = "*"
[[gate]]
figure = "KMNC(100)"
min = {least}
class = 7
[[gate]]
figure = "inputs"
min = 10
slice = "class=*"
[[gate]]
figure = "LCC.relative"
min = 0.8
"""
WAIVER = """
[[waivers]]
{subject}
reason = "few sevens yet"
owner = "Kim"
expires = 2999-01-31
"""


def test_gates_of_layers_classes_and_slices(run, tmp_path):
    test = demo.digits("test")
    x, y = test.pixels(), test.labels
    net = demo.train_digits(progress=False)
    cov = nc.Coverage(net, [nc.LCC(), nc.KMNC(100), nc.SNAC()])
    cov.calibrate(demo.digits("train").batches())
    cov.assess(chunks(x, y), slices=["class"])
    cov.save(tmp_path / "a.ncov")
    layer = next(iter(cov.layout))
    sevens = cov.by_slice()[0][7].alone["KMNC(100)"]
    rows = {row.layer: row for row in cov.by_layer()}

    def asked(*, least, subject=None, **more):
        text = PLACED.format(**{"layer": layer, **more}, least=least)
        (tmp_path / "p.toml").write_text(text + ("" if subject is None else WAIVER.format(subject=subject)))
        return run("gate", tmp_path / "a.ncov", "--policy", tmp_path / "p.toml")

    code, out, _ = asked(least=sevens)
    assert (code, "gate met" in out) == (0, True)
    assert f"met: SNAC of layer {layer} is {rows[layer].values['SNAC']:.4g}, asked for ≥ 0.01" in out
    for name, row in rows.items():
        assert f"met: LCC.relative of layer {name} is {row.figures['LCC.relative']:.4g}, asked for ≥ 0.5" in out
    assert f"met: inputs of slice class=7 is {int((y == 7).sum())}, asked for ≥ 10" in out
    code, out, _ = asked(least=sevens + 0.01)
    assert (code, "NOT MET: KMNC(100) of class 7 is" in out) == (1, True)
    for subject in ("class = 7", 'gate = "KMNC(100)"\nclass = 7', 'class = "*"'):
        code, out, _ = asked(least=sevens + 0.01, subject=subject)
        assert (code, "asked for" in out, "waived by Kim until 2999-01-31: few sevens yet" in out) == (0, True, True)
    for subject in ("class = 3", 'gate = "KMNC(100)"', 'gate = "SNAC"\nclass = 7', 'slice = "class=7"'):
        code, out, _ = asked(least=sevens + 0.01, subject=subject)
        assert (code, "by Kim until 2999-01-31 is not needed: few sevens yet" in out) == (1, True)
    for more, said in [
        ({"layer": "nowhere*"}, "SNAC of layer nowhere*: there is no such layer"),
        (
            {"layer": '"\nclass = 1\nfigure2 = "'},
            "a gate has figure, min, max, requirement, reason, layer, class, slice, and not",
        ),
        ({"subject": 'layer = "a"\nclass = 7'}, "names a layer and a class: expected one of them"),
        ({"subject": 'class = "seven"'}, "expected the number of a class"),
        ({"subject": "slice = 3"}, "slice = 3: expected a name, such as 'weather=rain'"),
    ]:
        code, _, err = asked(least=0.1, **more)
        assert (code, said in " ".join(err.split())) == (2, True), err
    (tmp_path / "p.toml").write_text('[[gate]]\nfigure = "SNAC"\nclass = 7\n')
    code, _, err = run("gate", tmp_path / "a.ncov", "--policy", tmp_path / "p.toml")
    assert (code, "needs a figure and a min or a max" in " ".join(err.split())) == (2, True)


def test_pyproject_configures_the_gate(run, files, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.neuralcov.gate.min]\n"LCC.relative" = 9\n')
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert run("gate", files / "test.ncov")[0] == 1
    # The command line decides.
    assert run("gate", files / "test.ncov", "--min", "LCC.relative=0.9")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing is asked"),
        (["--min", "LCC.relative"], "expected NAME=NUMBER"),
        (["--min", "LCC.relative=much"], "'much' is no number"),
        (["--min", "LCC.relativ=0.9"], "'LCC.relativ' is no figure of test.ncov: it has"),
        (["--max-drop", "5%"], "needs a baseline"),
        (["--max-drop", "-5%", "--baseline", "x.ncov"], "expected 0 or more"),
        (["--min", "SNAC=0", "--baseline", "nowhere.ncov"], "there is no such file"),
        (["--min", "SNAC=0", "--policy", "nowhere.toml"], "No such file"),
    ],
)
def test_wrong_use(run, files, arguments, said):
    code, _, err = run("gate", files / "test.ncov", *arguments)
    assert (code, said in " ".join(err.split())) == (2, True)


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

"""``compare`` and ``gate`` as a person types them: words and exit codes."""

import json

import pytest

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

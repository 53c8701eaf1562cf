"""``neuralcov report``: every format from a state file alone, and the gate's exit code."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from safetensors.torch import save_file

import neuralcov as nc
from neuralcov import demo


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A saved suite of digits, and one of half as many."""
    folder = tmp_path_factory.mktemp("states")
    net = demo.train_digits(epochs=4, progress=False)
    save_file(net.state_dict(), folder / "net.safetensors")
    samples = demo.digits("test")
    for name, rows in (("all", slice(None)), ("half", slice(300))):
        coverage = nc.Coverage(net, [nc.NC(0.5), nc.TKNC(1)])
        coverage.assess([(samples.pixels()[rows], samples.labels[rows])], slices=["class"], progress=False)
        coverage.save(folder / f"{name}.ncov")
    return folder


def test_every_ending_is_a_format(run, state, tmp_path):
    names = [tmp_path / f"r.{ending}" for ending in ("html", "json", "md", "xml", "prom", "txt")]
    outputs = [part for name in names for part in ("-o", name)]
    code, out, _ = run("report", state / "all.ncov", *outputs, "--min", "NC(0.5)=0.01", "--model-name", "<b>net</b>")
    assert code == 0
    assert all(str(name.name) in out.replace("\n", "") for name in names)
    page, content, markdown, junit, metrics, text = (name.read_text() for name in names)
    assert "&lt;b&gt;net&lt;/b&gt;" in page
    assert "<b>net</b>" not in page
    saved = nc.Coverage.load(state / "all.ncov")
    assert json.loads(content)["result"]["values"] == saved.values()
    assert json.loads(content)["verdict"]["met"] is True
    assert "by class" in markdown.lower()
    assert [case.get("name") for case in ElementTree.fromstring(junit).iter("testcase")] == ["NC(0.5)"]
    assert metrics.endswith("# EOF\n")
    assert "NC(0.5)" in text


def test_a_gate_that_is_not_met_ends_with_1_and_the_report_is_written(run, state, tmp_path):
    code, _, _ = run("report", state / "all.ncov", "-o", tmp_path / "r.xml", "--min", "NC(0.5)=1.01")
    assert code == 1
    assert ElementTree.parse(tmp_path / "r.xml").find(".//failure") is not None


def test_without_a_file_the_report_is_printed(run, state):
    code, out, _ = run("report", state / "all.ncov", "--format", "json")
    assert (code, json.loads(out)["result"]["suite"]) == (0, "all.ncov")


def test_a_baseline_stands_beside_the_suite(run, state):
    code, out, _ = run("report", state / "all.ncov", "--baseline", state / "half.ncov", "--format", "json")
    found = json.loads(out)["comparison"]
    assert (code, found["first"], found["second"]) == (0, "half.ncov", "all.ncov")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("-o", "r.pdf"), "its ending tells no format"),
        (("-o", "r.out", "--format", "pdf"), "expected one of html, json"),
        (("--format", "junit"), "none was asked: give --min, --max or --policy"),
        (("--max-drop", "5%"), "give --baseline FILE"),
        (("--min", "LCC=1"), "is no figure of"),
    ],
)
def test_wrong_use_is_refused(run, state, asked, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("report", state / "all.ncov", *asked)
    assert (code, said in " ".join(err.split())) == (2, True), err
    assert not list(tmp_path.iterdir())


def test_measure_keeps_inputs_for_the_report_unless_told_not_to(run, state, tmp_path):
    common = "measure", "demo:digits", "--weights", state / "net.safetensors", "--data", "demo:digits", "-c", "KMNC(10)"
    common = *common, "--calibrate", "demo:digits"
    for name, more in (("full", ()), ("bare", ("--no-inputs",))):
        assert run(*common, "--save", tmp_path / f"{name}.ncov", *more)[0] == 0
        assert run("report", tmp_path / f"{name}.ncov", "-o", tmp_path / f"{name}.html")[0] == 0
    full, bare = ((tmp_path / f"{name}.html").read_text() for name in ("full", "bare"))
    for part in ("data:image/png", 'id="map"', 'id="inputs"', 'id="fewer"'):
        assert part in full
        assert part not in bare
    # Names are those of the command that measured.
    assert "<b>demo:digits</b>" in bare
    assert 'id="growth"' in bare
    sizes = [(tmp_path / f"{name}.ncov").stat().st_size for name in ("full", "bare")]
    assert sizes[0] > sizes[1]
    assert b"\x89PNG" not in (tmp_path / "bare.ncov").read_bytes()

"""The plugin in real runs of pytest and pytest-xdist: values, exit codes, summaries, errors."""

import csv
import json
import os
import re
import subprocess
import sys

import pytest

import neuralcov as nc
from neuralcov.integrations import pytest_models, pytest_session  # noqa: F401
from neuralcov.sources.names import criterion_from_text
from tests.integrations.support import environment, install_entry_points

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")

NET = """
import functools
import torch
from torch import nn

def make(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    net[-1].bias.data -= net(DRAWN).mean(0).detach()
    return net

DRAWN = torch.randn(400, 6, generator=torch.Generator().manual_seed(5))

def truth(inputs):
    # What the model says, but for one in ten.
    classes = make()(inputs).argmax(1)
    classes[::10] = (classes[::10] + 1) % 3
    return classes

model, other = make(), make(1)
calls = []
model.register_forward_pre_hook(lambda module, args: calls.append(len(args[0])))
data = torch.randn(60, 6, generator=torch.Generator().manual_seed(3))
labels = truth(data)

def train():
    inputs = torch.randn(200, 6, generator=torch.Generator().manual_seed(4))
    return [(part, truth(part)) for part in inputs.split(50)]

cached = functools.cache(make)
number = 3
"""
TESTS = """
import pytest, torch, net

@pytest.mark.parametrize("part", range(4))
def test_part(part, neuralcov_labels):
    rows = slice(15 * part, 15 * part + 15)
    with torch.no_grad():
        for half in (slice(0, 10), slice(10, 15)):
            net.model(net.data[rows][half])
            neuralcov_labels(net.labels[rows][half])

def test_no_model():
    pass
"""
# All that merge to the bit, whatever the workers saw.
EXACT = (
    "NC(0.75), KMNC(5), NBC, SNAC, TKNC(2), TKNP(2), SS, LSC(1), LSC(1, by=label), DSC(0.1), MDSC(0.5), "
    "NPC(0.5, 0.6, 2, 4, activation), LCC, LCC(over=mean)"
)
ROUNDED = "NLC(rule=all), LVC"
INEXACT = "NLC, CC(1)"


def batches():
    net = namespace()
    data, labels = net["data"], net["labels"]
    for part in range(4):
        for half in (slice(15 * part, 15 * part + 10), slice(15 * part + 10, 15 * part + 15)):
            yield data[half], labels[half]


def namespace():
    found = {}
    exec(NET, found)
    return found


def assessed(criteria, data=None, calibrate=True):
    net = namespace()
    cov = nc.Coverage(net["model"], [criterion_from_text(each) for each in split(criteria)])
    if calibrate:
        cov.calibrate(net["train"](), progress=False)
    cov.assess(list(batches()) if data is None else data, progress=False)
    return cov


def joined(tests):
    return [batch for test in tests for batch in test]


def split(criteria):
    return re.findall(r"[^\s,(]+(?:\([^)]*\))?", criteria)


@pytest.fixture
def suite(pytester, monkeypatch):
    """A folder with a network and its tests, where this package's own entry points are installed."""
    site = pytester.mkdir("site")
    install_entry_points(site)
    monkeypatch.syspath_prepend(str(site))
    for name, value in environment(site).items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile(net=NET, test_net=TESTS)
    monkeypatch.syspath_prepend(str(pytester.path))
    return pytester


def run(suite, *options):
    """Run the tests in this process."""
    return suite.runpytest_inprocess("-p", "no:cacheprovider", *options)


def run_apart(suite, *options, alone=False):
    """Run the tests in processes of their own, as pytest-xdist needs it; ``alone`` without plugins of others."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    if alone:
        # By the name of its entry point.
        command += ["-p", "neuralcov"]
    environment = os.environ | ({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if alone else {})
    return subprocess.run(command, cwd=suite.path, capture_output=True, text=True, check=False, env=environment)


def values(file):
    return nc.Coverage.load(file).values()


def rows(file):
    with open(file, newline="") as opened:
        return list(csv.DictReader(opened))


def test_values_are_those_of_assess_to_the_bit(suite):
    criteria = f"{EXACT}, {ROUNDED}, {INEXACT}"
    options = ("--neuralcov-criteria", criteria, "--neuralcov-calibrate", "net:train", "--neuralcov-save", "a.ncov")
    ended = run(suite, "--neuralcov", "net:model", *options)
    assert ended.ret == 0
    found, expected = values(suite.path / "a.ncov"), assessed(criteria).values()
    assert list(found) == [criterion_from_text(each).name for each in split(criteria)]
    assert found == expected
    ended.stdout.fnmatch_lines(["*neuralcov: net:model*", "60 inputs in 8 passes, 3 layers, 20 neurons"])


def test_no_pass_is_added(suite):
    suite.makepyfile(test_zzz="import net\n\ndef test_calls():\n    assert net.calls == [10, 5] * 4\n")
    ended = run(suite, "--neuralcov", "net:model", "--neuralcov-contexts")
    ended.assert_outcomes(passed=6)


@pytest.mark.parametrize("name", ["NC(0.75)", "TKNC(10)"])
def test_a_figure_below_its_limit_fails_the_run(suite, name):
    value = assessed("NC(0.75), TKNC(10)", calibrate=False).values()[name]
    asked = ("--neuralcov-fail-under", f"{name}={value!r}")
    ended = run(suite, "--neuralcov", "net:model", *asked)
    assert ended.ret == 0
    ended.stdout.fnmatch_lines([f"met: {name} is *", "gate met"])
    ended = run(suite, "--neuralcov", "net:model", *asked, "--neuralcov-fail-under", "inputs=61")
    assert ended.ret == 1
    ended.assert_outcomes(passed=5)
    ended.stdout.fnmatch_lines(["NOT MET: inputs is 60, asked for ≥ 61", "gate NOT met: 1 of 2 checks failed"])


def test_an_alarm_fails_a_gate_unless_it_is_allowed(suite):
    suite.makepyfile(test_net="import net\n\ndef test_same():\n    net.model(net.data[:1].repeat(30, 1))\n")
    asked = ("--neuralcov", "net:model", "--neuralcov-fail-under", "inputs=30")
    ended = run(suite, *asked)
    assert ended.ret == 1
    ended.stdout.fnmatch_lines(["NOT MET: alarm:duplicates*"])
    ended = run(suite, *asked, "--neuralcov-allow-alarm", "duplicates=a smoke test")
    assert ended.ret == 0
    ended.stdout.fnmatch_lines(["WAIVED: alarm:duplicates*a smoke test*", "gate met"])


def test_reports(suite):
    files = [f"--neuralcov-report=r.{end}" for end in ("json", "md", "xml")]
    ended = run(suite, "--neuralcov", "net:model", "--neuralcov-fail-under", "inputs=60", *files)
    assert ended.ret == 0
    content = json.loads((suite.path / "r.json").read_text())
    assert "NC(0.75)" in json.dumps(content)
    assert "NC(0.75)" in (suite.path / "r.md").read_text()
    assert 'name="inputs"' in (suite.path / "r.xml").read_text()
    ended = run(suite, "--neuralcov", "net:model", *files)
    assert ended.ret == 4
    ended.stderr.fnmatch_lines(["ERROR: r.xml: JUnit has a case for everything that is asked, and nothing is: *"])


def test_what_each_test_adds(suite):
    criteria = "NC(0.75), KMNC(5), LCC, NLC, LVC"
    options = ("--neuralcov-criteria", criteria, "--neuralcov-calibrate", "net:train", "--neuralcov-contexts", "c.csv")
    ended = run(suite, "--neuralcov", "net:model", *options)
    ended.stdout.fnmatch_lines(["*by test, in order*", "test * inputs *", "test_net.py::test_part?0? * 15 *"])
    table = rows(suite.path / "c.csv")
    assert [row["id"] for row in table] == [f"test_net.py::test_part[{part}]" for part in range(4)]
    assert [row["inputs"] for row in table] == ["15"] * 4
    data = list(batches())
    tests = [data[2 * part : 2 * part + 2] for part in range(4)]
    up_to = [assessed(criteria, joined(tests[:part])).values() for part in range(1, 5)]
    for part, row in enumerate(table):
        alone = assessed(criteria, tests[part]).values()
        rest = assessed(criteria, joined(tests[:part] + tests[part + 1 :])).values()
        for name in ("NC(0.75)", "KMNC(5)", "LCC", "LVC"):
            before = up_to[part - 1][name] if part else 0.0
            assert float(row[f"{name}.alone"]) == alone[name]
            assert float(row[f"{name}.gain"]) == pytest.approx(up_to[part][name] - before, abs=1e-12)
            assert float(row[f"{name}.lost"]) == pytest.approx(up_to[-1][name] - rest[name], abs=1e-12)
        assert float(row["NLC.alone"]) == alone["NLC"]
        assert row["NLC.gain"] == row["NLC.lost"] == ""


def test_a_test_that_runs_twice_is_one_context(suite):
    suite.makeconftest(
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    from _pytest.runner import runtestprotocol\n"
        "    for _ in range(2):\n"
        "        item._initrequest()\n"
        "        runtestprotocol(item, nextitem=nextitem)\n"
        "    return True\n"
    )
    run(suite, "--neuralcov", "net:model", "--neuralcov-contexts", "c.jsonl")
    table = [json.loads(line) for line in (suite.path / "c.jsonl").read_text().splitlines()]
    assert [row["inputs"] for row in table] == [30] * 4


@pytest.mark.parametrize("options", [("-n", "2"), ("-n", "2", "--dist", "loadfile")], ids=["load", "file"])
def test_workers_together_are_one_process_to_the_bit(suite, options):
    criteria = f"{EXACT}, {ROUNDED}, {INEXACT}"
    common = ("--neuralcov", "net:model", "--neuralcov-criteria", criteria, "--neuralcov-calibrate", "net:train")
    one = run(suite, *common, "--neuralcov-save", "1.ncov", "--neuralcov-contexts", "1.csv")
    assert one.ret == 0
    ended = run_apart(suite, *options, *common, "--neuralcov-save", "2.ncov", "--neuralcov-contexts", "2.csv")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    first, second = nc.Coverage.load(suite.path / "1.ncov"), nc.Coverage.load(suite.path / "2.ncov")
    for text in split(EXACT):
        name = criterion_from_text(text).name
        assert second.values()[name] == first.values()[name]
        assert second.details().get(name) == first.details().get(name)
    for text in split(ROUNDED):
        name = criterion_from_text(text).name
        assert second.values()[name] == pytest.approx(first.values()[name], rel=1e-12)
    assert (suite.path / "2.csv").read_bytes() == (suite.path / "1.csv").read_bytes()
    assert "60 inputs in 8 passes, 3 layers, 20 neurons" in ended.stdout
    assert ("NLC, CC(1): merged from 2 workers, which is not exact" in ended.stdout) == ("loadfile" not in options)


def test_what_does_not_merge_exactly_is_not_judged(suite):
    asked = ("--neuralcov-criteria", "NLC", "--neuralcov-fail-under", "NLC=0")
    assert run(suite, "--neuralcov", "net:model", *asked).ret == 0
    ended = run_apart(suite, "-n", "2", "--neuralcov", "net:model", *asked)
    assert ended.returncode == 1
    assert "ERROR: --neuralcov-fail-under NLC: NLC does not merge exactly: run without -n" in ended.stdout


def test_a_worker_that_crashes_is_told_of(suite):
    suite.makepyfile(test_crash="import os\n\ndef test_crash():\n    os._exit(1)\n")
    ended = run_apart(suite, "-n", "1", "--neuralcov", "net:model")
    assert ended.returncode == 1
    assert "gw0 crashed: what its tests covered is missing here" in ended.stdout
    assert re.search(r"^NC\(0\.75\)|^  NC\(0\.75\)", ended.stdout, re.MULTILINE)


def test_an_error_in_workers_is_told_once(suite):
    ended = run_apart(suite, "-n", "2", "--neuralcov", "net:make")
    assert ended.returncode == 1
    assert ended.stdout.count("ERROR: --neuralcov net:make gives a new model at every call") == 1
    assert "5 passed" in ended.stdout


def test_nothing_is_imported_when_unused(suite):
    suite.makepyfile(
        test_net="""
        import sys

        def test_light(neuralcov_coverage, neuralcov_coverages, neuralcov_labels):
            neuralcov_labels([1])
            assert (neuralcov_coverage, neuralcov_coverages) == (None, {})
            ours = {name for name in sys.modules if name.partition(".")[0] == "neuralcov"}
            assert "neuralcov.integrations.pytest_plugin" in ours
            assert ours - {"neuralcov", "neuralcov.core", "neuralcov.core.lazy", "neuralcov.integrations"} == {
                "neuralcov.integrations.pytest_plugin"
            }
            assert {"torch", "numpy", "rich", "typer", "PIL", "safetensors"} & set(sys.modules) == set()
        """
    )
    for options in ((), ("--no-neuralcov", "--neuralcov", "net:model"), ("--neuralcov-criteria", "LCC")):
        ended = run_apart(suite, *options, alone=True)
        assert ended.returncode == 0, ended.stdout
        assert "neuralcov:" not in ended.stdout


FIXTURES = """
import pytest, torch, net

@pytest.fixture(scope="{scope}")
def network():
    yield net.make({seed})

@pytest.mark.parametrize("part", range(4))
def test_part(part, network, neuralcov_labels):
    rows = slice(15 * part, 15 * part + 15)
    with torch.no_grad():
        for half in (slice(0, 10), slice(10, 15)):
            network(net.data[rows][half])
            neuralcov_labels(net.labels[rows][half])
"""


@pytest.mark.parametrize("scope", ["session", "module", "function"])
def test_a_fixture_gives_the_model(suite, scope):
    suite.makepyfile(test_net=FIXTURES.format(scope=scope, seed=0))
    criteria = "NC(0.75), LCC, NLC, CC(1), LVC, DSC(0.1)"
    options = ("--neuralcov-criteria", criteria, "--neuralcov-calibrate", "net:train", "--neuralcov-save", "a.ncov")
    ended = run(suite, "--neuralcov", "fixture:network", *options, "--neuralcov-contexts", "c.csv")
    assert ended.ret == 0
    assert values(suite.path / "a.ncov") == assessed(criteria).values()
    assert [row["inputs"] for row in rows(suite.path / "c.csv")] == ["15"] * 4


def test_a_fixture_with_other_weights_is_refused(suite):
    suite.makepyfile(test_net=FIXTURES.format(scope="function", seed="torch.randint(1 << 30, ()).item()"))
    ended = run(suite, "--neuralcov", "fixture:network")
    assert ended.ret == 1
    ended.assert_outcomes(passed=1, errors=3)
    ended.stdout.fnmatch_lines(["*InputError: --neuralcov fixture:network gave another model than before: *"])


def test_a_cached_factory(suite):
    suite.makepyfile(test_net=TESTS.replace("net.model(", "net.cached()("))
    ended = run(suite, "--neuralcov", "net:cached", "--neuralcov-save", "a.ncov")
    assert ended.ret == 0
    assert values(suite.path / "a.ncov") == assessed("NC(0.75), TKNC(10)", calibrate=False).values()


def test_several_models(suite):
    suite.makepyfile(
        test_net="""
        import pytest, net

        def test_both(neuralcov_coverages, neuralcov_labels):
            net.model(net.data)
            neuralcov_labels(net.labels, model="net:model")
            net.other(net.data[:20])
            assert [cov.inputs for cov in neuralcov_coverages.values()] == [0, 0]  # the last pass waits for labels
            net.model(net.data), net.other(net.data[:20])
            assert [cov.inputs for cov in neuralcov_coverages.values()] == [60, 20]

        def test_which(neuralcov_labels):
            with pytest.raises(ValueError, match="2 models are measured: name one of net:model, net:other"):
                neuralcov_labels(net.labels)
            with pytest.raises(ValueError, match="'net:no' is not measured: name one of net:model, net:other"):
                neuralcov_labels(net.labels, model="net:no")
        """
    )
    models = ("--neuralcov", "net:model", "--neuralcov", "net:other")
    ended = run(suite, *models, "--neuralcov-save", "{model}.ncov")
    assert ended.ret == 0
    assert nc.Coverage.load(suite.path / "net_model.ncov").inputs == 120
    assert nc.Coverage.load(suite.path / "net_other.ncov").inputs == 40
    ended.stdout.fnmatch_lines(["*neuralcov: net:model*", "*neuralcov: net:other*"])
    ended = run(suite, *models, "--neuralcov-save", "a.ncov")
    assert ended.ret == 4
    ended.stderr.fnmatch_lines(["ERROR: a.ncov: 2 models would write it: put {model} into its name"])


def test_settings_in_pyproject(suite):
    suite.makepyprojecttoml(
        """
        [tool.neuralcov.pytest]
        models = "net:model"
        criteria = ["KMNC(5)", "SNAC"]
        layers = "0|2"
        calibrate = "net:train"
        save = "out/a.ncov"
        report = "out/a.json"
        contexts = "out/a.csv"
        fail_under = { "inputs" = 61 }
        allow_alarm = { "classes" = "a small suite" }
        """
    )
    ended = run(suite)
    assert ended.ret == 0
    assert not (suite.path / "out").exists()
    ended = run(suite, "--neuralcov")
    assert ended.ret == 1
    ended.stdout.fnmatch_lines(["NOT MET: inputs is 60, asked for ≥ 61"])
    saved = nc.Coverage.load(suite.path / "out/a.ncov")
    assert (list(saved.values()), list(saved.layout)) == (["KMNC(5)", "SNAC"], ["0", "2"])
    assert {path.name for path in (suite.path / "out").iterdir()} == {"a.ncov", "a.json", "a.csv"}
    over = ("--neuralcov-fail-under", "inputs=60", "--neuralcov-criteria", "NC(0.5)", "--neuralcov-save", "b.ncov")
    ended = run(suite, *over, "--neuralcov")
    assert ended.ret == 0
    assert list(values(suite.path / "b.ncov")) == ["NC(0.5)"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("model = 'net:model'", "'model' is not known; there are models, criteria, "),
        ("models = 3", "models = 3: expected a text, or a list of these"),
        ("fail_under = 3", "fail_under = 3: expected a table"),
        ("fail_under = { 'NC(0.75)' = 'much' }", "'much' is no number"),
        ("save = 3", "save = 3: expected a text"),
        ("", "--neuralcov names no model"),
    ],
)
def test_wrong_settings(suite, line, said):
    suite.makepyprojecttoml(f"[tool.neuralcov.pytest]\n{line}\n")
    ended = run(suite, "--neuralcov" if not line or "model" in line else "--neuralcov=net:model")
    assert ended.ret == 4
    assert said in ended.stderr.str()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--neuralcov=net"], "--neuralcov 'net': expected package.module:model or fixture:NAME"),
        (["--neuralcov=nowhere:model"], "--neuralcov nowhere:model: there is no module 'nowhere' to import"),
        (["--neuralcov=net:no"], "--neuralcov net:no: net has no 'no'"),
        (["--neuralcov=net:number"], "--neuralcov net:number is a int: expected a torch.nn.Module"),
        (["--neuralcov=net:train"], "--neuralcov net:train gave a list: expected a torch.nn.Module"),
        (["--neuralcov=net:make"], "--neuralcov net:make gives a new model at every call"),
        (["--neuralcov=test_fix:fix"], "--neuralcov test_fix:fix is a fixture: write --neuralcov fixture:fix"),
        (["--neuralcov=net:model", "--neuralcov=net:model"], "--neuralcov net:model: given 2 times: give it once"),
        (["--neuralcov=net:model", "--neuralcov-criteria=nope"], "'nope': no criterion is called 'nope'"),
        (["--neuralcov=net:model", "--neuralcov-layers=nope"], "'nope'"),
        (["--neuralcov=net:model", "--neuralcov-fail-under=0.2"], "--neuralcov-fail-under '0.2': expected NAME=NUMBER"),
        (["--neuralcov=net:model", "--neuralcov-calibrate=no.ncal"], "data 'no.ncal': expected"),
        (["--neuralcov=net:model", "--neuralcov-report=a.pdf"], "'a.pdf': its ending tells no format"),
        (["--neuralcov=net:model", "--neuralcov-contexts=a.pdf"], "expected a name that ends in .csv or .jsonl"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_wrong_use_is_told_in_one_sentence(suite, options, said):
    suite.makepyfile(test_fix="import pytest\n\n@pytest.fixture\ndef fix():\n    return 1\n")
    ended = run(suite, *options)
    assert ended.ret == 4
    lines = [line for line in ended.stderr.str().splitlines() if line.startswith("ERROR: ")]
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize(
    ("model", "test", "said"),
    [
        ("net:other", "net.model(net.data)", "no test ran this model: name the very object that tests call"),
        ("fixture:absent", "net.model(net.data)", "--neuralcov fixture:absent: no test requested this fixture"),
        ("net:model", "net.model[0](net.data)", "no test ran the model itself, but parts of it such as '0'"),
    ],
)
def test_a_run_in_which_nothing_was_heard_fails(suite, model, test, said):
    suite.makepyfile(test_net=f"import net\n\ndef test():\n    {test}\n")
    ended = run(suite, "--neuralcov", model, "--neuralcov-save", "a.ncov")
    assert ended.ret == 1
    assert said in ended.stdout.str()
    assert not (suite.path / "a.ncov").exists()


def test_an_unknown_figure_costs_no_file(suite):
    ended = run(suite, "--neuralcov", "net:model", "--neuralcov-fail-under", "LCC=1", "--neuralcov-save", "a.ncov")
    assert ended.ret == 1
    ended.stdout.fnmatch_lines(["ERROR: 'LCC' is no figure of tests: it has *"])
    assert nc.Coverage.load(suite.path / "a.ncov").inputs == 60


def test_passes_in_training_mode_and_outside_are_told(suite):
    suite.makepyfile(
        test_net="import net\n\ndef test():\n    net.model.train()\n    net.model(net.data)\n    net.model[0](net.data)"
    )
    ended = run(suite, "--neuralcov", "net:model")
    ended.stdout.fnmatch_lines(
        ["1 of 1 passes were in training mode*", "layers such as '0' were also called outside a pass*"]
    )


def test_what_ends_early_is_not_judged(suite):
    asked = ("--neuralcov", "net:model", "--neuralcov-fail-under", "inputs=1000")
    assert run(suite, *asked, "--collect-only").ret == 0
    assert run(suite, *asked, "-k", "nothing_like_it").ret == 5
    suite.makepyfile(test_a="def test_fails():\n    assert False\n")
    ended = run(suite, *asked, "-x")
    assert ended.ret == 1
    assert "gate" not in ended.stdout.str()


def test_no_hook_is_left_behind(suite):
    suite.makeconftest(
        """
        def pytest_sessionfinish(session):
            import net
            left = [m for m in net.model.modules() if m._forward_hooks or (m._forward_pre_hooks and m is not net.model)]
            assert not left and len(net.model._forward_pre_hooks) == 1
        """
    )
    ended = run(suite, "--neuralcov", "net:model", "--neuralcov-contexts")
    assert ended.ret == 0


def test_a_test_that_trains_the_model_is_refused_by_name(suite):
    suite.makepyfile(
        test_net="""
        import net, torch

        def test_first():
            net.model(net.data)

        def test_trains():
            net.model(net.data).sum().backward()
            with torch.no_grad():
                for parameter in net.model.parameters():
                    parameter -= 0.1 * parameter.grad

        def test_after():
            net.model(net.data)
        """
    )
    ended = run(suite, "--neuralcov", "net:model", "--neuralcov-save", "a.ncov")
    ended.assert_outcomes(passed=2, failed=1)
    ended.stdout.fnmatch_lines(["*test_after*", "*MismatchError: the weights changed since the first of these inputs*"])
    assert ended.ret == 1

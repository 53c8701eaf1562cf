"""The plugin in real runs of pytest and pytest-xdist: values, exit codes, summaries, errors."""

import json
import os
import re
import subprocess
import sys

import pytest

import neuralcov as nc
from neuralcov.integrations import pytest_models, pytest_session  # noqa: F401
from neuralcov.sources.names import criterion_from_text
from tests.integrations.plugin_support import (
    assessed,
    batches,
    make_suite,
    rows,
    run,
    split,
    values,
)

pytest_plugins = ["pytester"]


pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")


# All that merge to the bit, whatever the workers saw.
EXACT = (
    "NC(0.75), KMNC(5), NBC, SNAC, TKNC(2), TKNP(2), SS, LSC(1), LSC(1, by=label), DSC(0.1), MDSC(0.5), "
    "NPC(0.5, 0.6, 2, 4, activation), LCC, LCC(over=mean)"
)


ROUNDED = "NLC(rule=all), LVC"


INEXACT = "NLC, CC(1)"


def joined(tests):
    return [batch for test in tests for batch in test]


@pytest.fixture
def suite(pytester, monkeypatch):
    return make_suite(pytester, monkeypatch)


def run_apart(suite, *options, alone=False):
    """Run the tests in processes of their own, as pytest-xdist needs it; ``alone`` without plugins of others."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    if alone:
        # By the name of its entry point.
        command += ["-p", "neuralcov"]
    environment = os.environ | ({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if alone else {})
    return subprocess.run(command, cwd=suite.path, capture_output=True, text=True, check=False, env=environment)


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

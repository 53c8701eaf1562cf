"""Help and completion without PyTorch: what stands in for the commands shows what they show, and runs what they do."""

import importlib
import json
import os
import subprocess
import sys

import pytest
import typer

from neuralcov.cli import app as commands
from neuralcov.cli import declared

declare = pytest.importorskip("tools.declare")
HEAVY = ("torch", "numpy", "safetensors", "neuralcov.coverage.coverage")
RUN = "import sys; from neuralcov.cli.app import main\ntry: main()\nexcept SystemExit: pass\n"
LOADED = RUN + f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"


def help_of(declared_command, *path):
    """Return the help that typer shows of a command, or of one in a group."""
    command = commands._made("outer", declared_command)
    context = typer.Context(command, info_name="outer")
    for name in path:
        command = command.commands[name]
        context = typer.Context(command, info_name=name, parent=context)
    return command.get_help(context)


def test_the_file_is_up_to_date():
    assert declare.PLACE.read_text(encoding="utf-8") == declare.content(), "run: python -m tools.declare"


@pytest.mark.parametrize("name", declared.COMMANDS)
def test_what_stands_in_shows_the_same_help(name, capsys):
    found = declared.declarations()[name]
    shown = {}
    for kind, command in (("real", declared.defined(name)), ("stand-in", declared.stand_in(name, found))):
        paths = [(), *((inner,) for inner in found.get("commands", ()))]
        shown[kind] = [help_of(command, *path) or capsys.readouterr().out for path in paths]
    assert shown["real"] == shown["stand-in"]
    assert all(shown["real"])


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["measure", "--help"], ["fuzz", "run", "-h"], []])
def test_help_imports_no_torch(words):
    done = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
    assert done.stdout


def test_completion_imports_no_torch():
    asked = {"_NEURALCOV_COMPLETE": "complete_bash", "COMP_WORDS": "neuralcov measure --cal", "COMP_CWORD": "2"}
    script = LOADED.replace("main()", "sys.argv[0] = 'neuralcov'; main()", 1)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=os.environ | asked
    )
    assert done.stdout.split() == ["--calibrate"]
    assert done.stderr.splitlines()[-1] == "[]"


def test_quiet(run, tmp_path):
    code, out, err = run("layers", "demo:digits", "--quiet")
    assert (code, out, err) == (0, "", "")
    assert run("-q", "layers", "demo:digits") == (0, "", "")
    code, out, err = run("--quiet", "show", tmp_path / "nowhere.ncov")
    assert (code, out) == (2, "")
    assert err.count("neuralcov:") == 1
    assert run("layers", "demo:digits")[1]


def test_json_to_standard_output(run, tmp_path):
    state = tmp_path / "suite.ncov"
    assert run("measure", "demo:digits", "--data", "demo:digits", "-c", "nc", "--save", state)[0] == 0
    for words in (["--json", "-"], ["--json=-"]):
        code, out, _ = run("show", state, *words)
        assert code == 0
        assert json.loads(out)["inputs"] == 597
    code, out, _ = run("gate", state, "--min", "NC(0.75)=0.99", "--json", "-")
    assert code == 1
    assert json.loads(out)["met"] is False


def test_every_command_is_found():
    for place in declared.COMMANDS.values():
        module, _, attribute = place.partition(":")
        assert hasattr(importlib.import_module(f"neuralcov.cli.{module}"), attribute)


def test_flags_have_no_type(run):
    for words in (["--help"], ["measure", "--help"], ["fuzz", "run", "--help"]):
        out = run(*words)[1]
        assert "--help" in out
        assert "bool" not in out

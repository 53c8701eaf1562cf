"""Every command of ours that a page shows is one that the command line takes, and those of the guides are run.

What stands for "my package" is made by ``stand_in``. The tutorial and the first pages are run by tests/test_walk.py
with the built package, pages on integrations by tests/examples.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path

import click
import pytest

from neuralcov.cli.app import app
from tests.docs import stand_in

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "lab").glob("docs/*.md"))]
_OTHER_BLOCKS = re.compile(r"^( *)```(?!sh\b).*?^\1```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:    )?(neuralcov (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_PROSE = re.compile(r"neuralcov (?:follows|has) ")
# Smaller than a page has it, so that a test takes seconds.
_SMALLER = (("--calls 10000", "--calls 120"), ("--calls 5000", "--calls 60"), ("--device cuda", "--device cpu"))


def commands(page):
    """Return the commands of a page, as lists of words; what the ellipsis stands for is what the line above has."""
    found = []
    for text in _COMMAND.findall(_OTHER_BLOCKS.sub("", page.read_text(encoding="utf-8"))):
        if _PROSE.match(text) or "[--" in text:
            continue
        words = shlex.split(text.replace("\\\n", " "), comments=True)[1:]
        if "…" in words:
            whole = next(words for words in found if "-o" in words)
            words[1:2] = whole[1 : whole.index("-o")]
        found.append([word for word in words if word != "&"])
    return found


def groups():
    """Return the commands by name, with those of neuralcov-lab where it is installed."""
    from typer.main import get_command

    return get_command(app)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_is_one(page):
    for words in commands(page):
        group, rest = groups(), list(words)
        context = click.Context(group, info_name="neuralcov")
        while isinstance(group, click.Group):
            name, command, rest = group.resolve_command(context, rest)
            assert command is not None, words
            context = click.Context(command, parent=context, info_name=name)
            group = command
        group.make_context(rest[0] if rest else "", rest, parent=context.parent)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    stand_in.make(folder)
    return folder


@pytest.fixture
def place(project, tmp_path, monkeypatch):
    """A folder of one's own with everything that pages name."""
    shutil.copytree(project, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    for name in ("my", "my.package", "my_package", "my_texts", "old", "new", "mymodel"):
        sys.modules.pop(name, None)
    return tmp_path / "work"


# What commands of a page may answer besides 0: faults that are still there, a suite that is no better.
ANSWERS = {("fuzz", "replay"): (0, 1)}
RUN = {
    "README.md": 9,
    "docs/evidence.md": 3,
    "docs/gates.md": 6,
    "docs/report.md": 2,
    "docs/ranking.md": 5,
    "docs/llms.md": 1,
    "docs/how-to/fuzz-images.md": 4,
    "docs/how-to/fuzz-texts.md": 4,
}


@pytest.mark.parametrize("name", RUN)
def test_guides_run(run, place, name):
    done = []
    if name.endswith("fuzz-texts.md"):
        pytest.importorskip("transformers")
        stand_in.make_readers(place)
    for words in commands(ROOT / name):
        if words[:2] == ["fuzz", "show"] and not Path("campaign").exists():
            continue  # of a campaign that another page runs
        words = shlex.split(_smaller(shlex.join(words)))
        _bring_what_is_named(words, run)
        if words[:2] == ["fuzz", "run"]:
            shutil.rmtree("campaign", ignore_errors=True)
        code, out, err = run(*words)
        allowed = ANSWERS.get(tuple(words[:2]), (0,))
        assert code in allowed, f"{words}: exit {code}\n{out}\n{err}"
        done.append(words[0])
    assert len(done) == RUN[name]


def _smaller(text):
    for theirs, ours in _SMALLER:
        text = text.replace(theirs, ours)
    return text


def _bring_what_is_named(words, run):
    """Make files that a page takes for granted: the suite of the main branch, a state, labels."""
    needed = {"main.ncov", "suite.ncov"} & set(words)
    for name in needed:
        if not Path(name).exists() and words[words.index(name) - 1] != "--save":
            measure = (
                "measure my.package:build_model --weights model.safetensors --data folder:test --calibrate folder:train"
            )
            prepared = "--mean", "0.49,0.48,0.45", "--std", "0.25,0.24,0.26"
            assert run(*measure.split(), *prepared, "--slices", "class", "--save", name)[0] == 0
    if "labels.csv" in words and not Path("labels.csv").exists():
        rows = [
            f"{path.parent.name}/{path.name},{path.parent.name}" for path in sorted(Path("new").rglob("*.png"))[::5]
        ]
        Path("labels.csv").write_text("id,label\n" + "\n".join(rows) + "\n")

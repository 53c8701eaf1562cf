"""What a release is made of says the same everywhere; tools.package itself runs in CI."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from tools.package import FIRST_STEPS, QUICK_TESTS

import neuralcov
from neuralcov.criteria import ALL

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = ["3.11", "3.12", "3.13"]
WORKFLOWS = ROOT / ".github" / "workflows"


def test_the_version_is_one():
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert told["version"] == neuralcov.__version__
    assert f"\n## [{neuralcov.__version__}] - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version = {{{neuralcov.__version__}}}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_description_counts_the_criteria():
    assert len(ALL) == 15
    assert "fifteen criteria" in PROJECT["description"]


def test_the_changelog_keeps_to_its_format():
    titles = re.findall(r"^##+ .*$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert all(re.fullmatch(r"## \[[\d.]+\] - (unreleased|\d{4}-\d\d-\d\d)", t) for t in titles if t.startswith("## "))
    assert {title[4:] for title in titles if title.startswith("### ")} <= kinds


def test_lowest_versions_are_those_that_are_promised():
    promised = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", entry).groups() for entry in PROJECT["dependencies"])
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tried = dict(line.split("==") for line in lines if not line.startswith("#"))
    for name, version in tried.items():
        assert version.startswith(promised[name]), name
    assert {"torch", "numpy", "safetensors", "typer", "rich", "pillow"} <= set(tried)


@pytest.mark.skipif(not WORKFLOWS.is_dir(), reason="not a checkout")
def test_every_supported_python_is_tried():
    classifiers = [entry.rpartition(" ")[2] for entry in PROJECT["classifiers"] if "Python :: 3." in entry]
    assert classifiers == PYTHONS
    for workflow, jobs in (("test", ("test", "package")), ("release", ("try",))):
        told = yaml.safe_load((WORKFLOWS / f"{workflow}.yml").read_text(encoding="utf-8"))["jobs"]
        assert all(told[job]["strategy"]["matrix"]["python"] == PYTHONS for job in jobs)


def test_the_first_steps_work(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for step in FIRST_STEPS:
        if step != ("demo",):  # tests/demo has it
            code, _, err = run(*step)
            assert code == 0, err
    assert all((ROOT / name).exists() for name in QUICK_TESTS)

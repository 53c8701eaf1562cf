"""The list for tool qualification names tests that exist, criteria as they are, and files that are there."""

import ast
import json
from functools import cache
from pathlib import Path

import pytest

from neuralcov.core.criterion import Criterion
from neuralcov.core.find_criterion import criterion_class

ROOT = Path(__file__).parent.parent
LIST = json.loads((ROOT / "src/neuralcov/testing/qualification.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "qualification.md").read_text(encoding="utf-8")
NUMBERS = {f"R{number}" for number in range(1, 9)}


@cache
def functions_of(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def named_tests():
    for criterion in LIST["criteria"]:
        yield from (entry["test"] for entry in criterion["tests"])
        yield from (entry["shown_by"] for entry in criterion["requirements"].values() if entry["shown_by"])
    yield from (entry["test"] for entry in LIST["functions"])


@pytest.mark.parametrize("named", sorted(set(named_tests())))
def test_every_named_test_exists(named):
    path, _, name = named.partition("::")
    assert name.startswith("test_")
    assert name in functions_of(path)


def test_every_criterion_is_listed_as_it_is():
    known = {name: criterion_class(name) for name in Criterion.known}
    ours = {cls.__name__: cls for cls in known.values() if cls and cls.__module__.startswith("neuralcov.criteria")}
    listed = {entry["name"]: entry for entry in LIST["criteria"]}
    assert set(listed) == set(ours)
    for name, entry in listed.items():
        assert entry["definition"] == ours[name].definition, name
        assert set(entry["requirements"]) == NUMBERS
        assert entry["tests"]
        for requirement in entry["requirements"].values():
            assert requirement["here"] in ("yes", "partly", "no")
            # Whatever is claimed is shown.
            assert (requirement["shown_by"] is not None) == (requirement["here"] != "no")


def test_what_the_paper_says_of_its_own_criterion():
    (nlc,) = (entry for entry in LIST["criteria"] if entry["name"] == "NLC")
    assert {entry["paper"] for entry in nlc["requirements"].values()} == {"yes"}
    assert {entry["id"] for entry in LIST["requirements"]} == NUMBERS


def test_the_page_tells_all_of_the_list():
    for part in ("requirements", "functions", "known_anomalies"):
        for entry in LIST[part]:
            assert f"| {entry['id']} |" in PAGE, entry["id"]
    for entry in LIST["criteria"]:
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| {entry['name']} |"))
        signs = {"yes": "●", "partly": "◐", "no": "–"}
        told = [signs[entry["requirements"][f"R{number}"]["here"]] for number in range(1, 9)]
        assert [part.strip() for part in row.strip("|").split("|")][2:10] == told
    for text in (*LIST["intended_use"], *LIST["not_for"]):
        assert f"- {text}" in PAGE


@pytest.mark.skipif(not (ROOT / "lab").is_dir(), reason="results are in the lab, which the sdist leaves out")
def test_files_that_anomalies_refer_to_are_there():
    for entry in LIST["known_anomalies"]:
        assert (ROOT / entry["see"]).is_file(), entry

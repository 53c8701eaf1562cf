"""Docstrings are plain Markdown, which pages of the API are made from: no roles or directives of Sphinx."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SPHINX = re.compile(r":[a-z]+:`|\.\. [a-z]+::")
FOLDERS = [folder for folder in (ROOT / "src", ROOT / "lab" / "src") if folder.is_dir()]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_no_roles_of_sphinx(folder):
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted(folder.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if SPHINX.search(line)
    ]
    assert found == []

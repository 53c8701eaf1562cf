"""docs/architecture.md shows the tree as it is."""

import re

from tools.imports import PACKAGE, PAGE, page


def test_the_picture_of_imports_is_up_to_date():
    text = PAGE.read_text()
    assert text == page(text), "run python tools/imports.py"


def test_every_folder_is_told_in_one_line():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    table = PAGE.read_text().split("## The folders")[1].split("## Who imports")[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == folders


def test_files_that_are_named_exist():
    answers = PAGE.read_text().split("## Where a number")[1].split("## The folders")[0]
    for name in set(re.findall(r"`([a-z_/]+\.py)`", answers)):
        assert (PACKAGE / name).is_file(), name

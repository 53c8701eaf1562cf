"""Links in Markdown lead somewhere: every relative file is there, and so is the heading an anchor names."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
_FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def _tracked():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [ROOT / name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()]


def links(text):
    """Return the targets of the links in a page, those in code left out."""
    plain = _CODE.sub("", _FENCED.sub("", text))
    return [first or second for first, second in _LINK.findall(plain)]


@cache
def anchors(path):
    """Return the anchors of a page's headings, as GitHub makes them."""
    found, seen = set(), {}
    for heading in _HEADING.findall(_FENCED.sub("", path.read_text(encoding="utf-8"))):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def broken(path):
    """Return what is wrong with the links of a page."""
    for target in links(path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        place = (path.parent / file).resolve() if file else path
        if not place.exists():
            yield f"{target}: no such file"
        elif anchor and place.suffix == ".md" and anchor not in anchors(place):
            yield f"{target}: no such heading"


PAGES = _tracked()


@pytest.mark.skipif(not PAGES, reason="no checkout with git")
def test_relative_links_lead_somewhere():
    found = [f"{path.relative_to(ROOT)}: {problem}" for path in PAGES for problem in broken(path)]
    assert found == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](#one-two) [b](#three) [c](gone.md) `[d](gone.md)`\n```\n[e](gone.md)\n```\n")
    assert list(broken(page)) == ["#three: no such heading", "gone.md: no such file"]


@pytest.mark.skipif(not PAGES, reason="no checkout with git")
def test_nothing_of_a_machine_is_told():
    """Pages show no path of the machine they were written on."""
    for path in PAGES:
        assert not re.search(r"(?<![\w.])/(home|root|work|Users)/", path.read_text(encoding="utf-8")), path

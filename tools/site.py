"""Gather the pages of the site: ``python tools/site.py`` writes build/pages, which ``mkdocs.yml`` makes the site from.

``python tools/site.py --finish`` lets the built site fetch nothing: search from disk needs a script of another project,
which lies in docs/site.

Pages keep their places, so that links among them are the same on the site as in the repository. What differs: links
to files that are no pages lead to the repository, examples of the interpreter are coloured as such, Markdown behind a
fold is marked as such, and notes for the tests (``# doctest:``) are gone. Needs nothing but Python.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
SOURCES = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs"),
    *("lab/README.md", "lab/docs", "lab/results"),
)
REPOSITORY = "https://github.com/neuralcov/neuralcov/blob/main/"
PICTURES = {".png", ".svg", ".css", ".js"}
_SHIM = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(?P<indent> *)```python\n(?=\s*>>> )", re.MULTILINE)
_NOTE = re.compile(r" +# doctest: \+\w+$", re.MULTILINE)


def main() -> None:
    """Copy pages and pictures to where the site is made."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in pages():
        target = PAGES / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(as_page(path.read_text(encoding="utf-8"), path), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    print(f"{sum(1 for path in PAGES.rglob('*.md'))} pages in {PAGES.relative_to(ROOT)}", file=sys.stderr)


def pages() -> list[Path]:
    """Return the pages of the site and the files shown on them."""
    found = [ROOT / name for name in SOURCES if name.endswith(".md")]
    for name in SOURCES:
        folder = ROOT / name
        if folder.is_dir():
            found += [path for path in sorted(folder.rglob("*")) if path.suffix in {".md", *PICTURES}]
    return found


def as_page(text: str, path: Path) -> str:
    """Return the page that the site shows for a Markdown file."""
    text = _NOTE.sub("", _FENCE.sub(r"\g<indent>```pycon\n", text))
    text = text.replace("<details>", '<details markdown="1">')
    return _LINK.sub(lambda match: f"]({_on_site(match['target'], path)})", text)


def _on_site(target: str, path: Path) -> str:
    """Return a link of a page as the site needs it: to the repository if it leads to what is no page."""
    file, _, anchor = target.partition("#")
    if not file or "://" in file or file.startswith("mailto:"):
        return target
    place = (path.parent / file).resolve()
    if place in _SHOWN:
        return target
    if place.is_dir() and place / "README.md" in _SHOWN:
        return f"{file.rstrip('/')}/README.md" + (f"#{anchor}" if anchor else "")
    return REPOSITORY + place.relative_to(ROOT).as_posix() + (f"#{anchor}" if anchor else "")


_SHOWN = set(pages())


def finish() -> None:
    """Let the pages of build/site take from the site itself what they would fetch."""
    for page in SITE.rglob("*.html"):
        up = "../" * (len(page.relative_to(SITE).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(_SHIM, f"{up}docs/site/iframe-worker.js"), encoding="utf-8")


if __name__ == "__main__":
    finish() if "--finish" in sys.argv else main()

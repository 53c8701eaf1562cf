"""The site: every page is in its list, and pages are turned into those of the site as they should."""

from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent.parent
CONFIG = ROOT / "mkdocs.yml"

pytestmark = pytest.mark.skipif(not CONFIG.is_file(), reason="not a checkout")


def _listed(nav):
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for value in entry.values():
                yield from [value] if isinstance(value, str) else _listed(value)


def test_every_page_is_listed():
    listed = list(_listed(yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["nav"]))
    assert len(listed) == len(set(listed))
    assert {name for name in listed if not (ROOT / name).is_file()} == set()
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - set(listed) == set()


def test_pages_of_the_site():
    from tools.site import as_page

    page = ROOT / "docs" / "architecture.md"
    text = (
        "[a](fuzzing.md#mutations) [b](../src/neuralcov/__init__.py) [c](../tests) [d](integrations) [e](https://x.y)\n"
        "```python\n>>> f()  # doctest: +SKIP\n```\n```python\nf()\n```\n"
    )
    assert as_page(text, page) == (
        "[a](fuzzing.md#mutations) [b](https://github.com/neuralcov/neuralcov/blob/main/src/neuralcov/__init__.py) "
        "[c](https://github.com/neuralcov/neuralcov/blob/main/tests) [d](integrations/README.md) [e](https://x.y)\n"
        "```pycon\n>>> f()\n```\n```python\nf()\n```\n"
    )

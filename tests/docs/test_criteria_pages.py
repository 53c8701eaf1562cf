"""Every criterion has a page with its formula, a picture, its cost, when it misleads, and its source."""

import re
from pathlib import Path

import pytest

from neuralcov.criteria import ALL

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "criteria"


@pytest.mark.parametrize("criterion", ALL, ids=lambda criterion: criterion.__name__)
def test_page(criterion):
    name = criterion.__name__
    page = PAGES / f"{name.lower()}.md"
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {name}: ")
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert f"../images/criteria/{name.lower()}.png" in pictures
    # Plots of the lab are in a checkout; the sdist leaves the lab out.
    assert all((page.parent / picture).is_file() for picture in pictures if "lab/results" not in picture)
    # The formula: how the value, or the surprise that is counted, is made.
    assert re.search(r"[Vv]alue|Surprise|sum of absolute covariances", text)
    for part in (r"Cost\b", r"\*\*Good for\*\*", r"\*\*Not good\s+for\*\*", r"\*\*Source\.\*\*"):
        assert re.search(part, text), f"{page.name} lacks {part}"
    assert f"{name}(" in text

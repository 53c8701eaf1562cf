"""Look at the built site in a browser: ``python -m tools.check_site [--browser FILE] [--pictures FOLDER] [PAGE…]``.

Opens pages of build/site from disk at 390 and 1,280 pixels, light and dark, and fails on any violation that axe finds,
on a page that is wider than the screen, and on anything that is fetched from elsewhere. Without names it opens every
page at least once, the main ones in all four ways. Needs playwright, axe-playwright-python and a browser.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

SITE = Path(__file__).parent.parent / "build" / "site"
WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
MAIN = (
    *(
        "README.html",
        "index.html",
        "docs/start.html",
        "docs/tutorial.html",
        "docs/gallery.html",
        "docs/performance.html",
    ),
    *("docs/criteria/index.html", "docs/criteria/lcc.html", "docs/api/coverage.html", "docs/integrations/index.html"),
    *("lab/results/index.html", "lab/results/diversity-image.html", "docs/how-to/choose.html"),
)


def main() -> None:
    """Check pages; exit 1 with a line for each thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="names below build/site; all by default")
    parser.add_argument("--browser", help="a chromium; playwright's own by default")
    parser.add_argument("--pictures", type=Path, help="where to keep a picture of every page that is opened")
    asked = parser.parse_args()
    found = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if path.name != "404.html")
    if not found:
        sys.exit("build/site holds no page: run make site first")
    wrong: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=asked.browser, args=["--no-sandbox"])
        opened = 0
        for number, name in enumerate(asked.pages or found):
            ways = [(width, scheme) for width in WIDTHS for scheme in SCHEMES]
            # A page that is not among the main ones is opened in one way, in turn another.
            for width, scheme in ways if asked.pages or name in MAIN else [ways[number % len(ways)]]:
                opened += 1
                problems = _look(browser, name, width, scheme, asked)
                wrong += [f"{name}, {width} px, {scheme}: {problem}" for problem in problems]
        browser.close()
    print("\n".join(wrong) or f"{opened} views of {len(asked.pages or found)} pages: nothing wrong")
    sys.exit(1 if wrong else 0)


def _look(browser: Any, name: str, width: int, scheme: str, asked: argparse.Namespace) -> list[str]:
    """Open a page in one way; return what is wrong with it."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    fetched: list[str] = []
    tab.on("request", lambda request: fetched.append(request.url))
    tab.goto((SITE / name).as_uri())
    tab.wait_for_load_state("load")
    wrong = [f"fetches {url}" for url in fetched if not url.startswith(("file:", "data:", "blob:"))]
    wide = tab.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        wrong.append(f"is {wide} px wide")
    for violation in Axe().run(tab).response["violations"]:
        nodes = violation["nodes"]
        wrong.append(f"{violation['id']} ({violation['impact']}), {len(nodes)} times, as {nodes[0]['html'][:120]}")
    if asked.pictures is not None:
        asked.pictures.mkdir(parents=True, exist_ok=True)
        stem = name.removesuffix(".html").replace("/", "-")
        tab.screenshot(path=asked.pictures / f"{stem}-{width}-{scheme}.png")
    tab.close()
    return wrong


if __name__ == "__main__":
    main()

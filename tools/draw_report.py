"""Take pictures of the demo's report for the README and the docs: ``python -m tools.draw_report [chromium]``.

Writes hero-light.png, hero-dark.png and the three report-*.png to docs/images. Needs playwright and a browser: its own,
or the program named.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import neuralcov as nc
from neuralcov import demo
from neuralcov.cli.policy import thresholds
from neuralcov.results.policy import Policy

FOLDER = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT, PHONE = 1280, 780, 390
Scheme = Literal["light", "dark"]


def main() -> None:
    """Measure the demo's network, and show parts of its page."""
    warnings.simplefilter("ignore", nc.CoverageWarning)
    network = demo.train_digits(progress=False)
    criteria: list[nc.Criterion[Any]] = [
        nc.LCC(),
        nc.KMNC(100, errors=True),
        nc.SNAC(errors=True),
        nc.DSC(0.1, layers="fc1"),
    ]
    cov = nc.Coverage(network, criteria)
    cov.calibrate(demo.digits("train").batches(), held_out=0.3, progress=False)
    cov.assess(demo.digits("test").batches(), slices=["class"], keep_inputs=True, progress=False)
    asked = Policy(thresholds(["LCC.relative=0.9", "accuracy=0.95"], "--min"), thresholds(["LCC.off_map=0.1"], "--max"))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        page = Path(folder) / "report.html"
        cov.report(page, model="DigitsNet", suite="digits test", policy=asked)
        browser = play.chromium.launch(executable_path=sys.argv[1] if sys.argv[1:] else None, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            draw(browser, page, f"hero-{scheme}", scheme, until=HEIGHT)
        draw(browser, page, "report-light", "light", until="layers")
        draw(browser, page, "report-dark", "dark", start="layers", until="inputs", unfold="fc1")
        draw(browser, page, "report-phone", "light", width=PHONE, until="growth")
        browser.close()


def draw(
    browser: Browser,
    page: Path,
    name: str,
    scheme: Scheme,
    *,
    until: str | int,
    start: str | None = None,
    width: int = WIDTH,
    unfold: str | None = None,
) -> None:
    """Write one picture: from a section or the top to another section or so many pixels; a layer may be unfolded."""
    tab = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
    tab.goto(page.as_uri())
    if unfold is not None:
        tab.get_by_text(f"Neurons of {unfold}").click()

    def top(section: str) -> int:
        return int(tab.locator(f"#{section}").evaluate("(one) => one.getBoundingClientRect().top + scrollY"))

    above = 0 if start is None else top(start)
    below = until if isinstance(until, int) else top(until)
    picture = page.with_name("picture.png")
    tab.screenshot(path=picture, full_page=True, clip={"x": 0, "y": above, "width": width, "height": below - above})
    Image.open(picture).convert("RGB").quantize(96, kmeans=2).save(FOLDER / f"{name}.png", optimize=True)
    tab.close()


if __name__ == "__main__":
    main()

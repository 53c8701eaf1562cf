"""Take pictures of the demo's report for the README: ``python -m tools.draw_report [chromium]``.

Writes docs/images/hero-light.png and hero-dark.png. Needs playwright and a browser: its own, or the program named.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import neuralcov as nc
from neuralcov import demo
from neuralcov.cli.policy import thresholds
from neuralcov.results.policy import Policy

FOLDER = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1280, 780


def main() -> None:
    """Measure the demo's network, and show the top of its page in both schemes."""
    warnings.simplefilter("ignore", nc.CoverageWarning)
    network = demo.train_digits(progress=False)
    cov = nc.Coverage(network, [nc.LCC(), nc.KMNC(100), nc.SNAC(), nc.DSC(0.1, layers="fc1")])
    cov.calibrate(demo.digits("train").batches(), progress=False)
    cov.assess(demo.digits("test").batches(), slices=["class"], keep_inputs=True, progress=False)
    asked = Policy(thresholds(["LCC.relative=0.9", "accuracy=0.95"], "--min"), thresholds(["LCC.off_map=0.1"], "--max"))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        page = Path(folder) / "report.html"
        cov.report(page, model="DigitsNet", suite="digits test", policy=asked)
        browser = play.chromium.launch(executable_path=sys.argv[1] if sys.argv[1:] else None, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)  # type: ignore[arg-type]
            tab.goto(page.as_uri())
            picture = Path(folder) / "picture.png"
            tab.screenshot(path=picture)
            Image.open(picture).convert("RGB").quantize(64).save(FOLDER / f"hero-{scheme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()

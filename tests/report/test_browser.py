"""The pages in headless Chromium: no request, no sideways scroll, keyboard, print, and no violation found by axe.

Skipped where there is no Chromium: neither a system's own nor one that Playwright installed.
"""

import os
import shutil
from dataclasses import replace

import pytest

from neuralcov import demo
from neuralcov.report.campaign import CampaignContent, FaultPair, render_campaign
from neuralcov.report.html import render_html
from neuralcov.report.queue import QueuedInput, render_queue
from neuralcov.results.gate import Check, Verdict
from tests.report.example import measured, picture, sectioned

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser():
    system = next((found for name in NAMES if (found := shutil.which(name))), None)
    with playwright.sync_playwright() as started:
        own = started.chromium.executable_path
        if system is None and not os.path.isfile(own):
            pytest.skip(f"no Chromium: none of {', '.join(NAMES)} on the path, and Playwright installed none")
        # A container's root has no sandbox; the pages are our own.
        found = started.chromium.launch(executable_path=system or own, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    net = demo.train_digits(progress=False)
    content = sectioned(net, measured(net))
    checks = (Check("SNAC", False, "SNAC is 0.4, asked for ≥ 0.9"), Check("accuracy", True, "accuracy is 0.98"))
    # Many layers, with long names, so that there is a filter.
    layers = [
        replace(row, layer=f"encoder.block{n}.attention.{row.layer}") for n in range(5) for row in content.result.layers
    ]
    neurons = [
        replace(row, layer=f"encoder.block{n}.attention.{row.layer}")
        for n in range(5)
        for row in content.result.neurons
    ]
    content = replace(
        content,
        verdict=Verdict("digits", checks),
        result=replace(content.result, layers=tuple(layers), neurons=tuple(neurons)),
    )
    (folder / "report.html").write_text(render_html(content))
    shot = picture([[0, 0.5], [1, 0.2]])
    pairs = tuple(FaultPair(n, "3 taken for 8", ("rotation 25",), shot, shot, "said 3, then 8") for n in range(6))
    campaign = CampaignContent(
        "net", "digits", 100, 6, 4, (("mutants kept", "300"),), {"NLC": (3.7, 1.2)},
        {"Mutants kept": [(0.0, 0.0), (5.0, 40.0), (9.0, 300.0)]}, (("3 taken for 8", 6, 0),) * 2,
        {"rotation": (6, 5)}, (*pairs, FaultPair(9, "texts", ("swap",), "a b", "b a")), ("a note",),
    )  # fmt: skip
    (folder / "campaign.html").write_text(render_campaign(campaign))
    queued = [QueuedInput(n, f"{n}.png", "near the boundary to 4", 1 - n / 100, "said 9", shot) for n in range(1, 65)]
    queued.append(QueuedInput(65, "a text", "of a rare kind in training data", 0.1, "", None, "what it reads like"))
    (folder / "queue.html").write_text(render_queue("300 inputs of new, by suspicion", 300, queued, ["a note"]))
    return folder


@pytest.fixture
def opened(browser, pages):
    contexts = []

    def open_page(name, width=1280, scheme="light", **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        page, heard = context.new_page(), []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: heard.append(request.url))
        page.goto(f"file://{pages / name}")
        own = [said for said in heard if said.startswith(("file://", "data:image/png"))]
        assert heard == own, "nothing is asked for, nothing is refused by the policy, nothing fails"
        assert sum(said.startswith("file://") for said in own) == 1
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["report.html", "campaign.html", "queue.html"])
def test_axe_finds_no_violation(opened, name, width, scheme):
    page = opened(name, width, scheme, bypass_csp=True)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("width", [390, 700, 1280])
@pytest.mark.parametrize("name", ["report.html", "campaign.html", "queue.html"])
def test_nothing_scrolls_sideways(opened, name, width):
    page = opened(name, width)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_is_dark_and_print_is_light_with_all_unfolded(opened):
    background = "getComputedStyle(document.body).backgroundColor"
    page = opened("report.html", scheme="dark")
    assert page.evaluate(background) == "rgb(16, 19, 23)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert len(page.pdf()) > 10_000


def test_tables_sort_by_keyboard(opened):
    page = opened("report.html")
    head = page.locator("#t-layers thead th").nth(1)
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    shown = [
        int(text.replace(",", ""))
        for text in page.locator("#t-layers tbody tr:first-child td:nth-child(2)").all_inner_texts()
    ]
    assert shown == sorted(shown, reverse=True)
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"


def test_the_filter_hides_other_rows_and_says_how_many_are_left(opened):
    page = opened("report.html")
    box = page.locator("#f-t-layers")
    box.fill("block3 fc")
    assert page.locator("#t-layers tbody:visible").count() == 2
    assert page.locator("output[for=f-t-layers]").inner_text() == "2 of 20"
    box.press("Escape")
    assert page.locator("#t-layers tbody:visible").count() == 20


def test_layers_unfold_by_keyboard_and_links_lead_somewhere(opened):
    page = opened("report.html")
    summary = page.locator("#t-layers summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#t-layers .drill").first.is_visible()
    targets = page.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter((a) => !document.querySelector(a.hash)).length"
    )
    assert targets == 0
    page.reload()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_without_scripts_everything_is_there(browser, pages):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 900})
    page = context.new_page()
    page.goto(f"file://{pages / 'report.html'}")
    assert page.locator("#t-layers tbody").count() == 20
    assert page.locator("th button").count() == 0
    assert not page.locator(".filter").first.is_visible()
    context.close()

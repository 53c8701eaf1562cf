"""The page: what is in it, in which order, and that names with HTML in them are text."""

import base64
import hashlib
import html
import re
from dataclasses import replace

import pytest

from neuralcov import demo
from neuralcov.report.content import headline, next_steps
from neuralcov.report.html import absent_sections, render_html
from neuralcov.results.compare import Comparison, Row
from neuralcov.results.gate import Check, Verdict
from neuralcov.results.sections import Gallery, GalleryItem
from tests.report.example import measured, sectioned

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>&amp;'
SECTIONS = [
    "verdict", "sanity", "criteria", "growth", "layers", "slices", "map", "inputs", "fewer", "comparison", "evidence",
]  # fmt: skip


@pytest.fixture(scope="module")
def content():
    net = demo.train_digits(progress=False)
    full = sectioned(net, measured(net))
    checks = (Check("SNAC", False, "SNAC is 0.4, asked for ≥ 0.9"), Check("accuracy", True, "accuracy is 0.98"))
    comparison = Comparison("old.ncov", "digits test", (597, 597), (Row("SNAC", 0.4, 0.41, 0.1, "=", ""),))
    return replace(full, verdict=Verdict("digits test", checks), comparison=comparison)


@pytest.fixture(scope="module")
def page(content):
    return render_html(content)


def test_sections_come_in_the_order_of_the_questions(page):
    assert re.findall(r'<section id="(\w+)"', page) == SECTIONS
    assert re.findall(r'<li><a href="#(\w+)"', page) == SECTIONS
    # Each has a sentence on how to read it.
    for section in SECTIONS[1:]:
        part = page.split(f'<section id="{section}"')[1]
        assert '<p class="lead">' in part.split("</section>")[0], section


def test_the_page_needs_nothing_and_lets_nothing_else_run(page):
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    policy = html.unescape(policy)
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"\sstyle=|\son\w+=|<link|<iframe|url\(", page)
    sources = re.findall(r'\b(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith(("#", "data:image/png;base64,")) for source in sources)


def test_names_with_html_in_them_are_text(content):
    evil = replace(
        content.result,
        model=EVIL,
        suite=EVIL,
        findings=(EVIL,),
        layers=tuple(replace(row, layer=EVIL + row.layer) for row in content.result.layers),
        neurons=tuple(replace(row, layer=EVIL + row.layer) for row in content.result.neurons),
        galleries=(Gallery(EVIL, EVIL, (GalleryItem(EVIL, EVIL, EVIL, EVIL, None, EVIL),)),),
        map=replace(content.result.map, layer=EVIL, classes=(EVIL,) * len(content.result.map.suite)),
        provenance={EVIL: {EVIL: EVIL}, "procedure": {"command": [EVIL], EVIL: EVIL}},
        slices=tuple(
            replace(table, column=EVIL, rows=tuple(replace(row, slice=EVIL) for row in table.rows))
            for table in content.result.slices
        ),
    )
    found = render_html(replace(content, result=evil, about=dict.fromkeys(evil.values, EVIL)))
    assert found.count("<script>") == 1
    assert "<img src=x" not in found
    assert "&lt;script&gt;alert" in found


def test_half_a_character_in_a_name_is_replaced(content):
    page = render_html(replace(content, result=replace(content.result, suite="a\udcffb")))
    assert page.encode()
    assert "a?b" in page


def test_what_is_not_there_is_left_out_and_said(content):
    bare = replace(
        content.result, growth={}, references={}, neurons=(), map=None, galleries=(), fewer=None, slices=(), layers=()
    )
    plain = replace(content, result=bare, verdict=None, comparison=None)
    page = render_html(plain)
    assert re.findall(r'<section id="(\w+)"', page) == ["verdict", "sanity", "criteria", "evidence"]
    assert len(absent_sections(plain)) == 8
    assert "keep_inputs=True" in page


def test_the_headline_and_the_steps_follow_the_gate(content):
    assert headline(content).head == "This suite does not meet its gate."
    assert next_steps(content)[0].head == "Mend SNAC"
    met = replace(content, verdict=Verdict("t", (Check("SNAC", True, "SNAC is 1"),)))
    assert headline(met).head.startswith("This suite meets its gate")
    assert len(next_steps(content)) == 3


def test_pages_stay_small(content, page):
    without = re.sub(r'src="data:[^"]*"', "", page)
    assert len(without.encode()) < 120_000
    many = tuple(
        Gallery(str(n), "", tuple(replace(item, id=str(i)) for i, item in enumerate(gallery.items * 3)))
        for n, gallery in enumerate(content.result.galleries * 2)
    )
    crowded = render_html(replace(content, result=replace(content.result, galleries=many)))
    assert crowded.count("data:image/png") == 64
    assert len(crowded.encode()) < 2_000_000


def test_dead_neurons_are_counted_beyond_those_that_are_named(content):
    row = replace(content.result.neurons[0], dead=tuple(range(128)), dead_count=500)
    page = render_html(replace(content, result=replace(content.result, neurons=(row, *content.result.neurons[1:]))))
    assert re.search(r'data-label="Dead"[^>]*>500<', page)

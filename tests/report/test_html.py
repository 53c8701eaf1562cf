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
from neuralcov.report.identity import evidence_rows
from neuralcov.report.tables import layer_table, slice_page_tables
from neuralcov.results.compare import Comparison, Row
from neuralcov.results.gate import Check, Verdict
from neuralcov.results.sanity import Alarm
from neuralcov.results.sections import FewerInputs, Gallery, GalleryItem, GrowthCurve
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


def test_layers_have_what_lcc_says_of_them_and_many_begin_with_the_worst(content):
    page = render_html(content)
    first = content.result.layers[0]
    assert f'data-label="× training" data-v="{first.figures["LCC.relative"]:.6g}">' in page
    assert f'data-label="Off the map" data-v="{first.figures["LCC.off_map"]:.6g}">' in page
    many = tuple(
        replace(first, layer=f"layer{n}", figures={**first.figures, "LCC.off_map": (7 * n % 20) / 20})
        for n in range(20)
    )
    table = layer_table(replace(content.result, layers=many, neurons=()))
    shares = [float(row.cells[2].sort) for row in table.rows]
    assert shares == sorted(shares, reverse=True)
    assert "Layers where most inputs are off the map come first." in table.notes


def test_columns_without_anything_to_tell_are_left_out(content):
    assert "No neuron gave one value for all inputs." in layer_table(content.result).notes
    row = replace(content.result.neurons[0], constant=(3,), constant_count=1)
    found = layer_table(replace(content.result, neurons=(row, *content.result.neurons[1:])))
    assert ("Constant", True) in found.heads


def test_classes_say_how_often_the_model_is_right_and_what_it_says_instead(content):
    (table,) = slice_page_tables(content.result)
    assert [head for head, _ in table.heads][:4] == ["Class", "Inputs", "Right", "Mistaken for"]
    cells = {row.head: row.cells for row in table.rows}
    for row in content.result.slices[0].rows:
        assert float(cells[row.slice][1].sort) == pytest.approx(row.right / row.judged, rel=1e-5)
        assert (cells[row.slice][2].text == "–") is (row.right == row.judged)
    # Far below the others: of 50 inputs 25, where 98 % are right.
    rows = (replace(content.result.slices[0].rows[0], judged=50, right=25), *content.result.slices[0].rows[1:])
    low = replace(content.result, slices=(replace(content.result.slices[0], rows=rows),))
    assert slice_page_tables(low)[0].rows[0].cells[1].state == "warn"


def test_the_most_surprising_are_found_again_on_the_map(content):
    items = content.result.galleries[0].items[:3]
    named = tuple((item.id, *content.result.map.suite[place]) for place, item in enumerate(items))
    page = render_html(replace(content, result=replace(content.result, map=replace(content.result.map, named=named))))
    for letter, item in zip("ABC", items, strict=True):
        assert f">{letter}</text>" in page
        assert page.count(f"<b>{letter} · {item.id}</b>") == 1
    assert "D · " not in page


def test_a_comparison_shows_how_many_errors_lie_between(content):
    page = render_html(content)
    assert 'aria-label="+0.1 standard errors"' in page
    cx = re.search(r'class="apart".*?cx="([\d.]+)"', page)[1]
    assert 60 < float(cx) < 65, "a little to the right: above the baseline"


def test_the_verdict_says_how_varied_the_suite_is(content):
    met = replace(content, verdict=Verdict("t", (Check("SNAC", True, "SNAC is 1"),)))
    relative = content.result.details["LCC"]["relative"]
    assert f"By LCC it is {relative:.2f} (±" in headline(met).rest
    assert "of 1 criterion it shows no less than held-out training inputs." in headline(met).rest
    alarmed = replace(content.result.sanity, alarms=(Alarm("unlike", "all of it"),))
    said = headline(replace(met, result=replace(content.result, sanity=alarmed)))
    assert "varied" not in said.rest, "no praise while an alarm stands"


def test_reasons_stand_beside_gates(content):
    check = Check("SNAC", True, "SNAC is 1", requirement="SR-12", reason="less <b>scatter</b>")
    page = render_html(replace(content, verdict=Verdict("t", (check,))))
    assert "SR-12: less &lt;b&gt;scatter&lt;/b&gt;" in page


def test_how_few_would_do_stands_beside_a_draw_by_chance(content):
    fewer = FewerInputs("KMNC(100)", (40, 320), (0.5, 1.0))
    curve = GrowthCurve((60, 100, 400), (0.2, 0.4, 0.8), (0.0, 0.0, 0.0), "rarefied")
    result = replace(content.result, fewer=fewer, growth={"KMNC(100)": curve})
    page = render_html(replace(content, result=result)).split('<section id="fewer"')[1]
    assert re.findall(r'data-label="At random"[^>]*>([^<]*)<', page) == ["100", "400"]
    measured_in_order = replace(result, growth={"KMNC(100)": replace(curve, order="as measured", errors=None)})
    assert "At random" not in render_html(replace(content, result=measured_in_order))


def test_identity_is_in_words(content):
    origin = {
        "model": {"class": "Net", "id": "ab" * 32, "parameters": 1234},
        "calibration": {"model": {"id": "cd" * 32}},
        "software": {"torch": "2.9", "python": "3.11"},
        "measured": "2027-01-31T10:20:30Z",
        "preprocessing": {"mean": [0.5]},
    }
    rows = dict(evidence_rows(replace(content.result, provenance=origin, model_id=None)))
    assert rows["Model"][0].startswith("DigitsNet, Net, 1,234 parameters, 4 layers with 122 neurons")
    assert rows["Model"][1] == "sha256 " + "ab" * 32
    assert rows["Calibrated on"] == ("other weights", "sha256 " + "cd" * 32)
    assert rows["Software"] == ("torch 2.9, python 3.11",)
    assert rows["Preprocessing: mean"] == ("0.5",)
    assert "2027-01-31 10:20 UTC" in render_html(replace(content, result=replace(content.result, provenance=origin)))

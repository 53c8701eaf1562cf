"""The page of a campaign: what it shows, and that names with HTML in them are text."""

import re
from dataclasses import replace

import pytest

from neuralcov.report.campaign import CampaignContent, FaultPair, campaign_headline, render_campaign, thinned
from tests.report.example import picture

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def content():
    shot = picture([[0, 0.5], [1, 0.2]])
    pairs = (FaultPair(3, "3 taken for 8", ("rotation 25",), shot, shot, "said 3, then 8"),)
    return CampaignContent(
        "net", "digits", 100, 8, 4, (("mutants kept", "300"),), {"NLC": (3.7, 1.2)},
        {"Mutants kept": [(0.0, 0.0), (9.0, 300.0)], "one reading": [(1.0, 1.0)]},
        (("3 taken for 8", 6, 3), ("exception: ValueError", 2, 5)), {"rotation": (7, 5), "blur": (3, 1)}, pairs,
    )  # fmt: skip


def test_sections_and_figures(content):
    page = render_campaign(content)
    assert re.findall(r'<section id="(\w+)"', page) == ["verdict", "time", "groups", "mutations", "pairs"]
    assert "4 different faults were found." in page
    assert page.count('<svg class="chart"') == 1, "one reading is no curve"
    assert re.search(r">rotation</th><td[^>]*>7</td><td[^>]*>88 %", page)
    assert page.count("data:image/png") == 2
    assert "7 more lie in the campaign" in page
    assert "default-src &#39;none&#39;" in page


def test_no_fault_is_no_proof():
    bare = CampaignContent("net", "digits", 100, 0, 0)
    assert campaign_headline(bare).head == "No fault was found."
    assert re.findall(r'<section id="(\w+)"', render_campaign(bare)) == ["verdict"]
    one = campaign_headline(replace(bare, faults=1, distinct=1, groups=(("a", 1, 0),)))
    assert (one.head, one.rest) == ("1 fault was found.", "1 is saved, in 1 group of what became what.")


def test_names_with_html_in_them_are_text(content):
    pair = FaultPair(1, EVIL, (EVIL,), EVIL, EVIL, EVIL)
    page = render_campaign(
        replace(
            content,
            model=EVIL,
            data=EVIL,
            figures=((EVIL, EVIL),),
            coverage={EVIL: (1.0, 1.0)},
            pairs=(pair,),
            series={EVIL: [(0.0, 0.0), (1.0, 1.0)]},
            groups=((EVIL, 1, 1),),
            mutations={EVIL: (1, 1)},
            notes=(EVIL,),
        )
    )
    assert page.count("<script>") == 1
    assert "&lt;script&gt;" in page


def test_many_groups_and_readings_are_cut_short(content):
    groups = tuple((f"{n} taken for 8", 1, n) for n in range(50))
    page = render_campaign(replace(content, groups=groups, faults=50))
    assert "And 30 smaller groups, of 30 faults." in page
    points = [(float(n), float(n)) for n in range(10_000)]
    few = thinned(points)
    assert (len(few), few[0], few[-1]) == (240, points[0], points[-1])

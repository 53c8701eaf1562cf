"""A coverage in a notebook: small, without script, and never a traceback."""

import re
import sys
from html.parser import HTMLParser

import pytest
import torch
from torch import nn

import neuralcov as nc

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
LIMIT = 50_000


class Parser(HTMLParser):
    """Collects tags, attributes and text; every tag must be closed."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = set(), set(), [], ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(coverage):
    page = coverage._repr_html_()
    assert len(page.encode()) < LIMIT
    found = Parser(page)
    assert not found.tags & {"script", "style", "link", "img", "iframe"}
    assert not any(name.startswith("on") for name in found.attributes)
    return found.text


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("made", [
    lambda: nc.Coverage(network(), [nc.NC(0.5), nc.LCC()]),
    lambda: nc.Coverage.of_layers({"fc": 4}, [nc.NC(0.5)]),
])  # fmt: skip
def test_nothing_was_observed(made):
    text = shown(made())
    assert text.startswith("Coverage([")


def test_values_and_alarms():
    coverage = nc.Coverage(network(), [nc.NC(0.5), nc.LCC(), nc.KMNC(10)])
    coverage.calibrate([torch.randn(200, 6)])
    coverage.update(100 * torch.randn(60, 6), torch.zeros(60, dtype=torch.long))
    text = shown(coverage)
    for word in ("60 inputs", "on 2 layers", "NC(0.5)", "LCC", "KMNC(10)", "ALARM unlike"):
        assert word in text
    assert f"{coverage.values()['NC(0.5)']:.2f}"[:3] in text


def test_names_are_text():
    odd = "<script>alert(1)</script>"
    coverage = nc.Coverage.of_layers({odd: 4, "fc": 4}, [nc.DSC(0.1, layers=odd), nc.NC(0.5)])
    rows = {name: torch.rand(30, 4) for name in (odd, "fc")}
    coverage.calibrate(activations=rows, predictions=torch.arange(30) % 2)
    coverage.update(activations=rows, predictions=torch.arange(30) % 2)
    assert odd in shown(coverage)
    coverage.reset()
    assert odd in shown(coverage)


@pytest.mark.parametrize("observed", [True, False])
def test_many_criteria_with_long_names_stay_small(observed):
    layers = [f"encoder.block.{place}.attention.output.dense" for place in range(300)]
    criteria = [nc.NC(0.001 * number) for number in range(1, 200)]
    criteria += [nc.DSC(0.1, layers="|".join(layers[number:])) for number in range(30)]
    coverage = nc.Coverage.of_layers(dict.fromkeys(layers, 2), criteria)
    rows = {name: torch.rand(30, 2) for name in layers}
    coverage.calibrate(activations=rows, predictions=torch.arange(30) % 2)
    if observed:
        coverage.update(activations=rows, predictions=torch.arange(30) % 2)
    text = shown(coverage)
    assert "NC(0.001)" in text
    if observed:
        assert re.search(r"and \d+ criteria more", text)


def test_without_jinja2_there_is_plain_text(monkeypatch):
    from neuralcov.report import page

    monkeypatch.setitem(sys.modules, "jinja2", None)
    page._environment.cache_clear()
    coverage = nc.Coverage(network(), [nc.NC(0.5)])
    coverage.update(torch.randn(20, 6))
    text = shown(coverage)
    assert "20 inputs" in text
    assert "NC(0.5)" in text

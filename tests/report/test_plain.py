"""JSON, Markdown, JUnit, OpenMetrics and text, each read back by somebody else's parser."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from neuralcov import demo
from neuralcov.core.errors import InputError
from neuralcov.report.plain import (
    render_json,
    render_junit,
    render_markdown,
    render_openmetrics,
    render_text,
    report_schema,
)
from neuralcov.results.gate import Check, Verdict
from tests.report.example import measured, sectioned

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


@pytest.fixture(scope="module")
def coverage():
    net = demo.train_digits(progress=False)
    return net, measured(net)


@pytest.fixture(scope="module")
def content(coverage):
    checks = (
        Check("SNAC", False, 'SNAC is 0.4, "asked" for ≥ 0.9 <&>', None, "min", "R1", "because"),
        Check("LCC", False, "LCC is 0.4, asked for ≥ 0.9", "waived by Kim", "min"),
        Check("accuracy", True, "accuracy is 0.98", None, "min"),
        Check("accuracy", False, "accuracy is 0.98, asked for ≤ 0.5", None, "max"),
    )
    return replace(sectioned(*coverage), verdict=Verdict("digits", checks, ("a note",)))


def test_json_is_as_the_published_schema_says(coverage, content):
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    schema = report_schema()
    validator.check_schema(schema)
    _, measured_once = coverage
    plain = measured_once.report_content()
    odd = replace(content, result=replace(content.result, values={**content.result.values, "x": float("nan")}))
    for one in (content, plain, odd):
        found = json.loads(render_json(one))
        assert [error.message for error in validator(schema).iter_errors(found)] == []
    assert json.loads(render_json(odd))["result"]["values"]["x"] is None
    # The schema says something: a missing part and a wrong type are found.
    found = json.loads(render_json(content))
    found["result"]["inputs"] = "many"
    del found["headline"]
    assert len(list(validator(schema).iter_errors(found))) == 2


def test_markdown_is_short_and_holds_no_markup_of_names(content):
    text = render_markdown(content)
    assert len(text.encode()) <= 60_000
    assert "## ❌ This suite does not meet its gate" in text
    rows = tuple(replace(row, layer=f"layer|{n}<b>`x`") for row in content.result.layers for n in range(2000))
    crowded = render_markdown(
        replace(content, result=replace(content.result, layers=rows, findings=("@all *x* " * 40,) * 150))
    )
    assert len(crowded.encode()) <= 60_000
    assert "The rest is left out" in crowded
    assert "<b>" not in crowded
    assert "@all" not in crowded
    assert crowded.count("<details>") == crowded.count("</details>")


def test_junit_has_a_case_for_every_check(content):
    root = ElementTree.fromstring(render_junit(content))
    cases = list(root.iter("testcase"))
    assert [case.get("name") for case in cases] == ["SNAC", "LCC", "accuracy", "accuracy"]
    (suite,) = root
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    assert cases[0].find("failure").get("message") == 'SNAC is 0.4, "asked" for ≥ 0.9 <&>'
    assert "waived by Kim" in cases[1].find("skipped").get("message")
    assert cases[2].find("failure") is None
    properties = {item.get("name"): float(item.get("value")) for item in root.iter("property")}
    assert properties["SNAC"] == content.result.values["SNAC"]
    named = replace(content, result=replace(content.result, suite='\x00a"<b>'))
    assert ElementTree.fromstring(render_junit(named))[0].get("name").startswith('\ufffda"<b>')
    with pytest.raises(InputError, match="none was asked"):
        render_junit(replace(content, verdict=None))


def test_metrics_are_read_by_prometheus_own_parser(content):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    named = replace(content, result=replace(content.result, model='a"b\\c\nd'))
    families = {family.name: family for family in parser.text_string_to_metric_families(render_openmetrics(named))}
    values = {sample.labels["criterion"]: sample.value for sample in families["neuralcov_value"].samples}
    assert values == dict(content.result.values)
    assert families["neuralcov_value"].samples[0].labels["model"] == 'a"b\\c\nd'
    assert families["neuralcov_inputs"].samples[0].value == 597
    assert families["neuralcov_gate_met"].samples[0].value == 0
    checks = {sample.labels["check"]: sample.value for sample in families["neuralcov_check_met"].samples}
    assert checks == {"SNAC": 0, "LCC": 1, "accuracy": 0}


def test_text_holds_gate_values_and_layers(content):
    text = render_text(content)
    for word in ("SNAC is 0.4", "98 %", "KMNC(100)", "fc2"):
        assert word in text

"""The report for machines and pull requests: JSON, Markdown, JUnit, OpenMetrics, text."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.report import content as words
from neuralcov.report import tables
from neuralcov.report.content import BAD, FINE, ReportContent
from neuralcov.report.page import valid_text
from neuralcov.report.text import gate_lines, layer_tables, sanity_lines, slice_tables, value_table

# History of the schema: 1, the first.
SCHEMA = 1
_MARKDOWN = 60_000
_SIGNS = {FINE: "✅", BAD: "❌"}
# What may stand in XML 1.0, and in no line of text.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MEANINGFUL = re.compile(r"[\\`*_\[\]|~$]|^[#+-]")
# A backslash before a digit would be shown, so it goes before the sign that makes it an item of a list.
_ITEM = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of the report as JSON."""
    found: dict[str, Any] = json.loads(files(__package__).joinpath("report.schema.json").read_text(encoding="utf-8"))
    return found


def render_json(content: ReportContent) -> str:
    """Return everything as JSON, as ``report_schema`` says; numbers that JSON does not know become null."""
    said = words.headline(content)
    plain = {
        "schema": SCHEMA,
        "content": "neuralcov report",
        "state": said.state,
        "headline": said.head,
        "next_steps": [asdict(step) for step in words.next_steps(content)],
        "about": dict(content.about),
        "result": content.result.to_json(),
        "verdict": None if content.verdict is None else content.verdict.to_json(),
        "comparison": None if content.comparison is None else content.comparison.to_json(),
    }
    return json.dumps(_finite(plain), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def render_markdown(content: ReportContent) -> str:
    """Return the report for a pull request: at most 60 kB, what matters most first."""
    parts, size = [], 0
    left_out = "\n_The rest is left out: a comment may not be longer._\n"
    for part in _markdown_parts(content):
        size += len(part.encode("utf-8", "replace"))
        if size > _MARKDOWN - len(left_out.encode()):
            parts.append(left_out)
            break
        parts.append(part)
    return valid_text("".join(parts))


def _markdown_parts(content: ReportContent) -> Iterator[str]:
    result, said = content.result, words.headline(content)
    yield f"## {_SIGNS.get(said.state, '⚠️')} {_said(said.head)}\n\n{_said(said.rest)}\n\n{_said(content.title)}, "
    yield f"{counted(result.inputs, 'input')}.\n"
    if content.verdict is not None:
        yield "\n| gate | | |\n|---|---|---|\n"
        for check in content.verdict.checks:
            state = "✅ met" if check.met else "⚠️ waived" if check.fine else "❌ **not met**"
            why = f" ({check.waived})" if check.waived and not check.met else ""
            yield f"| {_name(check.name)} | {state} | {_said(check.sentence + why)} |\n"
        yield "".join(f"\n- {_said(note)}" for note in content.verdict.notes) + "\n"
    checks = words.sanity_checks(result)
    if checks:
        yield "\n### Is it sane?\n\n"
        for sane in checks:
            yield f"- {_SIGNS.get(sane.state, '⚠️')} {_said(f'{sane.head}. {sane.rest}'.strip())}\n"
    for sentence in words.warnings(result):
        yield f"- ⚠️ {_said(sentence)}\n"
    yield "\n### Criteria\n\n| criterion | value | second half added | beside it |\n|---|---:|---:|---|\n"
    for card in words.cards(content):
        beside = [" ".join(large) for large in card.large]
        beside += [*card.beside, *([f"{card.against.head} {card.against.rest}".strip()] if card.against else [])]
        row = (_name(card.name), _said(card.value), card.second_half or "–", "; ".join(map(_said, beside)))
        yield f"| {' | '.join(row)} |\n"
    steps = words.next_steps(content)
    if steps:
        yield "\n### Next\n\n" + "".join(f"1. **{_said(step.head)}.** {_said(step.rest)}\n" for step in steps)
    if content.comparison is not None:
        yield from _markdown_table(tables.comparison_page_table(content.comparison), "Comparison")
    for table in tables.slice_page_tables(result):
        yield from _markdown_table(table, table.caption)
    layers = tables.layer_table(result)
    if layers is not None:
        yield from _markdown_table(layers, "Layers")


def _markdown_table(table: tables.PageTable, title: str) -> Iterator[str]:
    """Yield a table behind a fold, as one part: half of one would not close its fold."""
    heads = "|".join(f" {_name(head)} " for head, _ in table.heads)
    rule = "|".join("---:" if number else "---" for _, number in table.heads)
    rows = "".join(
        f"| {' | '.join([_name(row.head), *(_said(cell.text) for cell in row.cells)])} |\n" for row in table.rows
    )
    notes = "".join(f"\n- {_said(note)}" for note in table.notes)
    yield f"\n<details><summary>{escape(title)}</summary>\n\n|{heads}|\n|{rule}|\n{rows}{notes}\n</details>\n"


def _said(text: str) -> str:
    r"""Return text that Markdown shows as it is: no markup, no HTML, no mention of a user.

    >>> _said("a|b <i> *x* @me")
    'a\\|b &lt;i&gt; \\*x\\* @\u2060me'
    >>> _said("0.5752 of 1"), _said("1. FC Cologne")
    ('0.5752 of 1', '1\\. FC Cologne')
    """
    plain = _ITEM.sub(r"\1\\\2", _MEANINGFUL.sub(r"\\\g<0>", " ".join(text.split())))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u2060")


def _name(text: str) -> str:
    r"""Return a name as code, in a table too.

    >>> _name("NC(0.75)"), _name("a|b"), _name("x`y")
    ('`NC(0.75)`', '`a\\|b`', '`` x`y ``')
    """
    plain = " ".join(text.split()).replace("|", "\\|") or " "
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {plain} {fence}" if longest else f"`{plain}`"


def render_junit(content: ReportContent) -> str:
    """Return the gate as JUnit's XML, a case for each check; a waived one counts as skipped."""
    verdict, result = content.verdict, content.result
    if verdict is None:
        raise InputError(
            "JUnit has a case for every check of a gate, and none was asked: give --min, --max or --policy"
        )
    failed = sum(not check.fine for check in verdict.checks)
    waived = sum(check.fine and not check.met for check in verdict.checks)
    counts = f'tests="{len(verdict.checks)}" failures="{failed}" errors="0" skipped="{waived}"'
    name = _attribute(content.title)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<testsuites name="neuralcov" {counts} time="0">']
    lines += [f'  <testsuite name={name} {counts} time="0">', "    <properties>"]
    for key, value in {"inputs": result.inputs, **result.values}.items():
        lines.append(f'      <property name={_attribute(key)} value="{value:.17g}"/>')
    lines.append("    </properties>")
    for check in verdict.checks:
        lines.append(f'    <testcase classname="neuralcov.gate" name={_attribute(check.name)} time="0">')
        if not check.fine:
            lines.append(f'      <failure type="gate" message={_attribute(check.sentence)}/>')
        elif not check.met:
            lines.append(f"      <skipped message={_attribute(f'{check.sentence}: {check.waived}')}/>")
        lines.append("    </testcase>")
    return "\n".join([*lines, "  </testsuite>", "</testsuites>", ""])


def _attribute(text: str) -> str:
    return quoteattr(_NO_XML.sub("�", text))


def render_openmetrics(content: ReportContent) -> str:
    """Return figures as OpenMetrics text, for Prometheus and its like."""
    result, sanity, verdict = content.result, content.result.sanity, content.verdict
    base = {"model": result.model, "suite": result.suite}
    families: list[tuple[str, str, list[tuple[dict[str, str], float]]]] = [
        ("inputs", "Inputs of the suite.", [({}, result.inputs)]),
        ("value", "Value of a criterion.", [({"criterion": name}, value) for name, value in result.values.items()]),
        (
            "figure",
            "Figure beside the value of a criterion.",
            [
                ({"criterion": name, "figure": figure}, value)
                for name, figures in result.details.items()
                for figure, value in figures.items()
            ],
        ),
    ]
    if sanity is not None:
        known = {
            name: getattr(sanity, name) for name in ("accuracy", "classes", "unlike", "duplicates", "near_duplicates")
        }
        samples = [({"figure": name}, float(value)) for name, value in known.items() if value is not None]
        families.append(("sanity", "Figure to look at before any value.", samples))
        families.append(("alarms", "Alarms that stand.", [({}, len(sanity.alarms))]))
    if verdict is not None:
        met = [({"check": name}, float(fine)) for name, fine in _checks(verdict.checks).items()]
        families.append(("gate_met", "Whether the gate is met.", [({}, float(verdict.met))]))
        families.append(("check_met", "Whether a check is met or waived.", met))
    lines = []
    for name, help_text, samples in families:
        if samples:
            lines += [f"# TYPE neuralcov_{name} gauge", f"# HELP neuralcov_{name} {help_text}"]
            lines += [f"neuralcov_{name}{_labels(base | labels)} {_metric(value)}" for labels, value in samples]
    return valid_text("\n".join([*lines, "# EOF", ""]))


def _checks(checks: Sequence[Any]) -> dict[str, bool]:
    """Join checks of one name, such as a least and a most: a metric may stand there once."""
    found: dict[str, bool] = {}
    for check in checks:
        found[check.name] = found.get(check.name, True) and check.fine
    return found


def _labels(labels: Mapping[str, str]) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inside = ",".join(f'{name}="{quoted(text)}"' for name, text in labels.items() if text)
    return f"{{{inside}}}" if inside else ""


def _metric(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def render_text(content: ReportContent) -> str:
    """Return what a terminal shows, every layer included."""
    from rich.console import Console
    from rich.text import Text

    result = content.result
    console = Console(file=io.StringIO(), width=120, no_color=True, markup=False, emoji=False, highlight=False)
    for line in [] if content.verdict is None else [*gate_lines(content.verdict), ""]:
        console.print(Text(line))
    for line in [] if result.sanity is None else [*sanity_lines(result.sanity), ""]:
        console.print(Text(line))
    for sentence in words.warnings(result):
        console.print(Text(f"note: {sentence}"))
    console.print(value_table(result))
    for table in (*slice_tables(result), *layer_tables(result)):
        console.print(table)
    written = console.file
    assert isinstance(written, io.StringIO)
    return valid_text(written.getvalue())

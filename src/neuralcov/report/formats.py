"""Every form a report can take, by its name and by the ending of its file."""

from __future__ import annotations

from collections.abc import Callable

from neuralcov.core.errors import InputError
from neuralcov.core.files import Place, ending_of, name_of, write_text
from neuralcov.report.content import ReportContent
from neuralcov.report.html import render_html
from neuralcov.report.plain import render_json, render_junit, render_markdown, render_openmetrics, render_text

FORMATS: dict[str, Callable[[ReportContent], str]] = {
    "html": render_html,
    "json": render_json,
    "markdown": render_markdown,
    "junit": render_junit,
    "openmetrics": render_openmetrics,
    "text": render_text,
}
_ENDINGS = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".md": "markdown",
    ".xml": "junit",
    ".prom": "openmetrics",
    ".txt": "text",
}


def format_of(path: Place, asked: str | None = None) -> str:
    """Return the format of a file: the one that was asked for, else by its ending.

    >>> format_of("report.html"), format_of("out.xml"), format_of("out", "markdown")
    ('html', 'junit', 'markdown')
    """
    if asked is not None:
        if asked not in FORMATS:
            raise InputError(f"format {asked!r}: expected one of {', '.join(FORMATS)}")
        return asked
    ending = ending_of(path)
    if ending not in _ENDINGS:
        raise InputError(
            f"{name_of(path)!r}: its ending tells no format; use one of {', '.join(_ENDINGS)}, or name a format"
        )
    return _ENDINGS[ending]


def write_report(content: ReportContent, path: Place, asked: str | None = None) -> None:
    """Write a report; the file is complete under its name, or as it was before."""
    write_text(path, FORMATS[format_of(path, asked)](content))

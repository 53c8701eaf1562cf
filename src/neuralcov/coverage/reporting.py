"""Write a report of what was measured, and show it in a notebook."""

from __future__ import annotations

import datetime
import inspect
import warnings
from dataclasses import replace
from html import escape

from neuralcov.core.errors import CoverageWarning, InputError, MissingExtraError
from neuralcov.core.files import Place
from neuralcov.coverage.data import CoverageData
from neuralcov.coverage.environment import to_utc
from neuralcov.report.content import ReportContent
from neuralcov.report.formats import format_of, write_report
from neuralcov.report.html import render_summary
from neuralcov.results.compare import Comparison
from neuralcov.results.gate import Verdict, judge_gate
from neuralcov.results.policy import Policy

# Of plain text in a notebook.
_MOST_TEXT = 8000


class ReportingCoverage(CoverageData):
    """Tell people and machines what was measured."""

    def report(
        self,
        path: Place,
        *,
        format: str | None = None,
        model: str = "",
        suite: str = "",
        policy: Policy | None = None,
    ) -> None:
        """Write a report: a page, JSON, Markdown, JUnit, OpenMetrics or text.

        Args:
            path: where to: a path, a URL or an open binary file. Its ending tells the format: .html,
                .json, .md, .xml (JUnit), .prom (OpenMetrics), .txt.
            format: ``"html"``, ``"json"``, ``"markdown"``, ``"junit"``, ``"openmetrics"`` or ``"text"``, where the
                ending does not tell.
            model: what to call the model; by default its class.
            suite: what to call the inputs.
            policy: what is asked of the suite; the report says whether it is met.
        """
        kind = format_of(path, format)
        verdict = None
        content = self.report_content(model=model, suite=suite)
        if policy is not None:
            verdict = judge_gate(content.result, policy, datetime.datetime.now(datetime.UTC).date())
        write_report(replace(content, verdict=verdict), path, kind)

    def report_content(
        self,
        *,
        model: str = "",
        suite: str = "",
        verdict: Verdict | None = None,
        comparison: Comparison | None = None,
    ) -> ReportContent:
        """Return all that a report renders, as plain data.

        Args:
            model: what to call the model; by default as the command that measured it did, or by its class.
            suite: what to call the inputs; by default as that command did.
            verdict: what a gate said of this suite.
            comparison: a baseline, first, beside this suite.
        """
        if self._measurement.collection.empty:
            raise InputError("nothing was observed, so there is nothing to report: call assess or update first")
        with warnings.catch_warnings():
            # Findings stand in the report.
            warnings.simplefilter("ignore", CoverageWarning)
            names = (self._measurement.procedure or {}).get("names") or {}
            of_class = "" if self.model is None else type(self.model).__name__
            named = model or str(names.get("model") or of_class)
            result = self.results(model=named, suite=suite or str(names.get("data") or ""), missing=True)
        if not result.provenance:
            runs = self._measurement.seen.runs
            times = [run.last for run in runs if run.last is not None]
            measured = {"measured": to_utc(max(times))} if times else {}
            result = replace(result, provenance={**self.provenance(), **measured})
        return ReportContent(result, verdict, comparison, {one.name: _about(one) for one in self.criteria})

    def _repr_html_(self) -> str:
        """Show the values in a notebook, as far as anything was observed."""
        if self.layout is None or self._measurement.collection.empty:
            return _preformatted(repr(self))
        try:
            return render_summary(self.report_content())
        except MissingExtraError:
            return _preformatted(str(self))


def _preformatted(text: str) -> str:
    """Return text for a notebook, cut where it is long: names of criteria may list hundreds of layers."""
    return f"<pre>{escape(text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + '…')}</pre>"


def _about(criterion: object) -> str:
    """Return what a criterion is, as the first line of its documentation says; papers and formulas are left out."""
    first = (inspect.getdoc(type(criterion)) or "").partition("\n")[0]
    return first.partition(" (")[0].rstrip(".:")

"""What the commands write to: results to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from rich.console import Console

from neuralcov.core.errors import CoverageWarning


def output() -> Console:
    """For results. Tables keep their width when nobody's terminal limits it."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
    return Console(width=width)


def complain(sentence: str) -> None:
    """One sentence on standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]neuralcov:[/] {_plain(sentence)}")


def note(sentence: str) -> None:
    """Something to bear in mind, on standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"[yellow]note:[/] {_plain(sentence)}")


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Findings as notes; other warnings as Python shows them."""
    if issubclass(category, CoverageWarning):
        note(str(message))
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *where[:2]))


def _plain(text: str) -> str:
    """Text in which square brackets are no markup."""
    return text.replace("[", "\\[")

"""The page of a queue: the inputs to look at first, each with the reason why it stands where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuralcov.report.page import picture_source, render_page

_TEXT = 400


@dataclass(frozen=True)
class QueuedInput:
    """Hold one input to look at.

    Args:
        rank: its place, from 1.
        name: its id.
        why: the reason, in words.
        score: as the queue has it.
        said: what the model says of it, in words.
        picture: what it looks like (PNG).
        text: what it reads like, where it is no picture.
    """

    rank: int
    name: str
    why: str
    score: float
    said: str = ""
    picture: bytes | None = None
    text: str = ""


@dataclass(frozen=True)
class _Shown:
    """Hold an input as the page shows it."""

    picture: str | None
    text: str
    name: str
    why: str
    said: str
    wrong: bool = False
    letter: str = ""


def render_queue(title: str, total: int, inputs: Sequence[QueuedInput], notes: Sequence[str] = ()) -> str:
    """Return the page of a queue, which needs nothing else.

    Args:
        title: what is in the queue, in words.
        total: how many inputs the queue has.
        inputs: the first of them.
        notes: what a person should read beside it.
    """
    shown = [
        _Shown(
            None if one.picture is None else picture_source(one.picture),
            one.text[:_TEXT] + ("…" if len(one.text) > _TEXT else ""),
            f"{one.rank}: {one.name}",
            one.why,
            f"{one.said}, score {one.score:.3f}" if one.said else f"score {one.score:.3f}",
        )
        for one in inputs
    ]
    pictured = any(one.picture is not None for one in shown)
    return render_page(
        "queue.html", title=f"neuralcov: {title}", head=title, total=total, items=shown, pictured=pictured, notes=notes
    )

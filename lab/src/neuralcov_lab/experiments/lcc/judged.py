"""Judge LCC's orders from finished jobs, and say of those that it gets wrong what would put them right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.lcc.plan import NAME
from neuralcov_lab.experiments.lcc.variants import LCC
from neuralcov_lab.experiments.tables import RIGHT, markdown

# Variants that tell why an order is wrong, by name: in words, and what it means where one of them is right.
REMEDIES = {
    "new decisions 0": (
        "new decisions counting 0",
        "the suite below stays in known boxes, where the network decides as it never did: LCC calls that variety",
    ),
    "32 directions": (
        "32 directions",
        "boxes are too coarse; in finer ones the suite below lies off the map",
    ),
    "novel boxes 1": (
        "what is off the map counting 1",
        "most of what the suite above shows, strong attacks as a rule, is off the map, where it counts nothing",
    ),
}


@dataclass(frozen=True)
class Judged:
    """Hold an order on one subject: by name, a sign for each draw."""

    subject: str
    group: str
    order: str
    signs: Mapping[str, str]

    def right(self, name: str) -> bool:
        """Return whether most draws are right."""
        return 2 * self.signs[name].count("+") > len(self.signs[name])


def jobs_by_part(jobs: Sequence[JobResult]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return results by part of the proof and subject."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for job in jobs:
        if job.belongs_to(NAME):
            part = job.content["kind"].removeprefix(f"{NAME} ")
            found.setdefault(part, {})[job.parameters["subject"]] = job.result
    return found


def all_orders(parts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[Judged]:
    """Return every order of every subject."""
    for subject, result in parts.get("orders", {}).items():
        for order in result["orders"]:
            yield Judged(subject, order["group"], f"{order['above']} > {order['below']}", order["right"])


def score(judged: Sequence[Judged], name: str) -> tuple[int, int, float]:
    """Return orders right by majority, orders, and the share of single draws that are right."""
    known = [one for one in judged if name in one.signs]
    draws = "".join(one.signs[name] for one in known)
    return sum(one.right(name) for one in known), len(known), draws.count("+") / max(1, len(draws))


def wrong_orders(judged: Sequence[Judged]) -> list[str]:
    """Return the section on orders that LCC gets wrong, by subject, with the variants that get them right."""
    wrong = [one for one in judged if not one.right(LCC)]
    right, total, _ = score(judged, LCC)
    said = f"LCC has {right} of {total} ground-truth orders right by majority of draws."
    if not wrong:
        return ["## What it gets wrong", f"{said} None is wrong on these subjects."]
    rows = []
    for one in wrong:
        marks = [RIGHT if _right(one, name) else "" for name in REMEDIES]
        draws = f"{one.signs[LCC].count('+')} of {len(one.signs[LCC])}"
        rows.append([one.subject, one.group, one.order, draws, *marks])
    header = ["subject", "about", "order", "draws right", *(f"right with {words}" for words, _ in REMEDIES.values())]
    return ["## What it gets wrong", f"{said} Wrong are:", markdown(header, rows), "Why:", _reasons(wrong, judged)]


def _reasons(wrong: Sequence[Judged], judged: Sequence[Judged]) -> str:
    """Say how many of the wrong orders each variant puts right, what that tells, and which orders it loses."""
    lines = []
    for name, (words, meaning) in REMEDIES.items():
        mended = sum(_right(one, name) for one in wrong)
        lost = Counter(one.group for one in judged if one.right(LCC) and name in one.signs and not one.right(name))
        groups = ", ".join(f"{group} {count}" for group, count in lost.most_common())
        lines.append(
            f"- {mended} of {len(wrong)} come out with {words}: {meaning}. It loses {lost.total()} others ({groups})."
        )
    rest = sum(not any(_right(one, name) for name in REMEDIES) for one in wrong)
    return "\n".join([*lines, f"- {rest} come out with none of these."])


def _right(one: Judged, name: str) -> bool:
    return name in one.signs and one.right(name)

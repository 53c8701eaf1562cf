"""What campaigns are compared by: distinct faults, roots, pairs of classes, clusters, natural faults, change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralcov.fuzz import Campaign, Fault
from neuralcov_lab.experiments.searching.subjects import SearchSubject, features, predicted

CENTRES = 100
_ROUNDS = 25


def outputs_in_three_ways(campaign: Campaign) -> dict[str, int]:
    """Count faults among the kept mutants: against the label, of seeds that were right, against the parent."""
    corpus = campaign.state.corpus
    entries = corpus.entries
    kept = entries[corpus.roots :]
    labels = campaign.state.labels[kept["root"]]
    before, after = entries["prediction"][kept["root"]], kept["prediction"]
    wrong = (after != labels) & (after >= 0)
    return {
        "against the label": int(wrong.sum()),
        "of seeds that were right": int((wrong & (before == labels)).sum()),
        "against the parent": int(((after != entries["prediction"][kept["parent"]]) & (after >= 0)).sum()),
    }


def distinct_faults(campaign: Campaign) -> list[Fault]:
    """Return the first example of every misprediction: of another root input or another wrong class."""
    found: dict[tuple[int, int | None], Fault] = {}
    for fault in campaign.faults:
        if "misprediction" in fault.fault_types:
            found.setdefault((fault.root, fault.after), fault)
    return list(found.values())


@dataclass(frozen=True, eq=False)
class FaultJudge:
    """Judge faults by the other networks of a subject.

    Args:
        subject: with the other networks.
        centres: of the cells that k-means makes of test inputs in the first one's features.
    """

    subject: SearchSubject
    centres: Tensor | None

    @classmethod
    def of(cls, subject: SearchSubject) -> FaultJudge:
        """Return a judge; its cells are the same for every campaign of a subject."""
        other = next(iter(subject.others.values()), None)
        if other is None:
            return cls(subject, None)
        some = subject.test.inputs[: 5 * CENTRES]
        return cls(subject, k_means(features(other, subject, some), min(CENTRES, len(some) // 3)))

    def figures(self, faults: Sequence[Fault], seeds: Tensor, levels: int) -> dict[str, Any]:
        """Return what is to be known of faults that were found from these seeds."""
        pairs = {(fault.label, fault.after) for fault in faults}
        found: dict[str, Any] = {"pairs": len(pairs), "natural": None, "natural roots": None, "clusters": None}
        found["change"] = None
        if not faults:
            return found | {"natural": 0, "natural roots": 0, "clusters": 0} if self.subject.others else found
        mutants = torch.stack([fault.input for fault in faults]).to(seeds.device)
        roots = torch.tensor([fault.root for fault in faults], device=seeds.device)
        if not self.subject.texts:
            found["change"] = float((mutants.float() - seeds[roots].float()).abs().mean()) / levels
        if self.subject.others:
            labels = torch.tensor([fault.label for fault in faults])
            right = torch.ones(len(faults), dtype=torch.bool)
            for other in self.subject.others.values():
                right &= predicted(other, self.subject, mutants) == labels
            found["natural"], found["natural roots"] = int(right.sum()), len(set(roots.cpu()[right].tolist()))
        if self.centres is not None:
            other = next(iter(self.subject.others.values()))
            found["clusters"] = len(set(nearest(features(other, self.subject, mutants), self.centres).tolist()))
        return found


def k_means(points: Tensor, count: int, seed: int = 0) -> Tensor:
    """Return centres of so many cells (Lloyd's algorithm from random points).

    >>> apart = torch.tensor([[0.0], [0.2], [9.0], [9.2]])
    >>> sorted(round(float(centre), 1) for centre in k_means(apart, 2)[:, 0])
    [0.1, 9.1]
    """
    points = points.double()
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))
    centres = points[order[:count]].clone()
    for _ in range(_ROUNDS):
        cells = nearest(points, centres)
        for cell in range(count):
            mine = points[cells == cell]
            if len(mine):
                centres[cell] = mine.mean(0)
    return centres


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """Return the number of the nearest centre of every point."""
    return torch.cdist(points.double(), centres).argmin(1)

"""Tell a campaign as plain data: counts over time, groups of faults with examples, for pages and other tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from neuralcov.fuzz.campaign.reader import StoredCampaign
from neuralcov.fuzz.faults.fault import Fault, described, group_words, grouped, mutation_counts
from neuralcov.fuzz.faults.texts import difference
from neuralcov.fuzz.formats import InputFormat, Tokens
from neuralcov.fuzz.validity import edit_distance


def overview(campaign: StoredCampaign, *, examples: int = 3) -> dict[str, Any]:
    """Return a campaign as plain data that JSON can hold.

    ``groups`` are the largest first: what became what, how many faults were saved, which mutations they hold, and
    examples, those of the fewest needed mutations and nearest to their origins first.

    Args:
        campaign: as ``open_campaign`` reads it.
        examples: of each group.
    """
    notes, counts = campaign.config.get("notes", {}), campaign.state.counts
    classes = notes.get("classes")
    return {
        "about": {
            "model": notes.get("order", {}).get("model"),
            "data": notes.get("order", {}).get("data"),
            "seeds": len(campaign.state.labels),
            "settings": campaign.config["settings"],
            "criteria": campaign.config["criteria"],
            "machine": campaign.config.get("machine", {}),
        },
        "counts": {
            "seconds": counts.seconds,
            "waves": counts.waves,
            "seeds done": counts.finished,
            "mutants made": counts.candidates,
            "valid": counts.acceptable,
            "calls": counts.run,
            "kept": counts.kept,
            "different faults": counts.distinct,
            "seeds broken": len(counts.broken),
            "mutants misread": counts.faulty,
            "faults saved": counts.faults,
            "new fault chance": counts.new_fault_chance,
        },
        "over time": campaign.folder.stats(),
        "mutations": mutation_counts([fault.steps for fault in campaign.faults], campaign.mutations),
        "groups": [
            _group(campaign, group, members, classes, examples) for group, members in grouped(campaign.faults).items()
        ],
    }


def _group(
    campaign: StoredCampaign,
    group: tuple[str, ...],
    members: Sequence[Fault],
    classes: Sequence[str] | None,
    examples: int,
) -> dict[str, Any]:
    told = sorted((_example(campaign, fault) for fault in members), key=_order)
    return {
        "what": group_words(group, classes),
        "group": list(group),
        "faults": len(members),
        "roots": len({fault.root for fault in members}),
        "mutations": mutation_counts([fault.steps for fault in members], campaign.mutations),
        "examples": told[:examples],
    }


def _example(campaign: StoredCampaign, fault: Fault) -> dict[str, Any]:
    story = _story(campaign, fault)
    root = campaign.state.corpus.inputs(slice(fault.root, fault.root + 1))[0]
    mutations = described(fault.steps, campaign.mutations)
    found = {
        "number": fault.number,
        "root": fault.root,
        "label": fault.label,
        "before": fault.before,
        "after": fault.after,
        "message": fault.message,
        "mutations": mutations,
        "needed": story.get("needed", mutations),
        "change": change_of(fault.input, root, campaign.input_format),
        "file": story.get("file"),
        "smaller file": story.get("smaller file"),
    }
    if isinstance(campaign.input_format, Tokens):
        text = campaign.input_format.text
        found |= {"text": text(fault.input), "origin": text(root)}
        found["difference"] = difference(found["origin"], found["text"])
    return found


def _order(example: dict[str, Any]) -> tuple[int, float, int]:
    return len(example["needed"]), example["change"], example["number"]


def _story(campaign: StoredCampaign, fault: Fault) -> dict[str, Any]:
    path = campaign.folder.faults / f"{fault.stem}.json"
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def change_of(mutant: Tensor, root: Tensor, input_format: InputFormat) -> float:
    """Return how far a mutant is from its root: the mean change of pixels in [0, 1], or the edit distance in words."""
    if isinstance(input_format, Tokens):
        return float(edit_distance(mutant[None], root[None], input_format.padding)[0])
    return float((input_format.decode(mutant).double() - input_format.decode(root).double()).abs().mean())

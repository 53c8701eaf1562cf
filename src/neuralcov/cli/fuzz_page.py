"""A stored campaign as plain data, for its page."""

from __future__ import annotations

import io
from collections.abc import Sequence

from torch import Tensor

from neuralcov.core.counted import counted
from neuralcov.fuzz.campaign.reader import StoredCampaign
from neuralcov.fuzz.campaign.result import Stats
from neuralcov.fuzz.faults.fault import Fault, best_example, described, group_words, grouped, main_cause
from neuralcov.fuzz.faults.pictures import as_bytes, pick_from_groups
from neuralcov.fuzz.formats import InputFormat, Tokens
from neuralcov.report.campaign import CampaignContent, FaultPair

_PAIRS, _NUMBERS = 32, 24
# What is drawn over time: fields of a line of figures, with their titles.
_COUNTS = {"kept": "Mutants kept", "distinct": "Different faults", "judged": "Candidates judged"}


def campaign_content(campaign: StoredCampaign) -> CampaignContent:
    """Return what a page shows of a campaign, from its folder alone."""
    notes, counts, faults = campaign.config["notes"], campaign.state.counts, campaign.faults
    names, classes, lines = notes.get("order", {}), notes.get("classes"), campaign.folder.stats()
    figures = [
        ("seeds done with", f"{counts.finished:,} (one may come up again), in {counted(counts.waves, 'wave')}"),
        ("candidates judged", f"{counts.judged:,} in {counts.seconds:,.0f} s"),
        ("mutants kept", f"{counts.kept:,} ({counts.admitted:.1%} of judged)"),
        ("different faults", f"{counts.distinct:,}, from {counted(len(counts.broken), 'seed')}"),
    ]
    said = [main_cause(faults, campaign.mutations)]
    coverage = {}
    if lines:
        stats = Stats(**lines[-1])
        said += [stats.still_new, stats.still_faults]
        grown = lines[-1].get("growth", {})
        coverage = {name: (float(value), float(grown.get(name, 0.0))) for name, value in lines[-1]["values"].items()}
    return CampaignContent(
        model=str(names.get("model", "")),
        data=str(names.get("data", "")),
        seeds=len(campaign.state.labels),
        faults=len(faults),
        distinct=counts.distinct,
        figures=tuple(figures),
        coverage=coverage,
        series=_series(lines),
        groups=tuple(
            (group_words(group, classes), len(members), best_example(members).number)
            for group, members in grouped(faults).items()
        ),
        mutations=_mutations(campaign),
        pairs=tuple(_pair(campaign, fault, classes) for fault in _chosen(faults)),
        notes=tuple(told for told in said if told),
    )


def _series(lines: Sequence[dict[str, object]]) -> dict[str, list[tuple[float, float]]]:
    """Return counts and coverage over time."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        seconds, values = float(str(line["seconds"])), line["values"]
        for name, title in _COUNTS.items():
            if name in line:
                found.setdefault(title, []).append((seconds, float(str(line[name]))))
        for name, value in values.items() if isinstance(values, dict) else ():
            found.setdefault(f"Coverage {name}", []).append((seconds, float(value)))
    return found


def _mutations(campaign: StoredCampaign) -> dict[str, tuple[int, int]]:
    """Return, by mutation, in how many faults it took part, and in how many it was the only one; the most first."""
    took_part: dict[str, int] = {}
    alone: dict[str, int] = {}
    for fault in campaign.faults:
        names = {campaign.mutations[step.mutation].name for step in fault.steps}
        for name in names:
            took_part[name] = took_part.get(name, 0) + 1
            alone[name] = alone.get(name, 0) + (len(names) == 1)
    most = sorted(took_part, key=lambda name: (-took_part[name], name))
    return {name: (took_part[name], alone[name]) for name in most}


def _chosen(faults: Sequence[Fault]) -> list[Fault]:
    """Return some faults of every group, the one to look at first of each before the others."""
    first = [best_example(members) for members in grouped(faults).values()]
    numbers = {fault.number for fault in first}
    return [*first, *(fault for fault in pick_from_groups(faults, len(faults)) if fault.number not in numbers)][:_PAIRS]


def _pair(campaign: StoredCampaign, fault: Fault, classes: Sequence[str] | None) -> FaultPair:
    before = campaign.state.corpus.inputs(slice(fault.root, fault.root + 1))[0]
    said = [f"said {_name(fault.before, classes)}, then {_name(fault.after, classes)}"]
    if fault.label is not None and fault.label >= 0:
        said.append(f"is {_name(fault.label, classes)}")
    return FaultPair(
        fault.number,
        group_words(fault.group, classes),
        tuple(described(fault.steps, campaign.mutations)),
        _view(before, campaign.input_format),
        _view(fault.input, campaign.input_format),
        ", ".join(said) if fault.message is None else fault.message,
    )


def _name(number: int | None, classes: Sequence[str] | None) -> str:
    if number is None:
        return "nothing"
    return classes[number] if classes is not None and 0 <= number < len(classes) else str(number)


def _view(stored: Tensor, input_format: InputFormat) -> bytes | str:
    """Return an input as a picture (PNG) or text."""
    if isinstance(input_format, Tokens):
        return input_format.text(stored)
    pixels = as_bytes(stored, input_format)
    if pixels is None:
        flat = stored.flatten()[:_NUMBERS].tolist()
        return "numbers " + " ".join(f"{number:.3g}" for number in flat)
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", optimize=True)
    return out.getvalue()

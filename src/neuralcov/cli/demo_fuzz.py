"""The demo's second half: search for digits that the network gets wrong, and draw what was found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from neuralcov.coverage.coverage import Coverage
from neuralcov.criteria import NLC
from neuralcov.fuzz import Campaign, Fuzzer
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.writer import save_shrunk
from neuralcov.fuzz.faults.fault import group_words
from neuralcov.fuzz.faults.pictures import fault_sheet, save_image, spread
from neuralcov.sources.samples import Samples

_ITERATIONS = 600
_SECONDS = 15.0
_DRAWN = 24


def fuzz_digits(net: torch.nn.Module, seeds: Samples, folder: Path, iterations: int = _ITERATIONS) -> Campaign:
    """A short campaign guided by NLC, left in ``folder``; what an earlier demo left there gives way."""
    if (folder / "config.json").is_file():
        shutil.rmtree(folder)
    fuzzer = Fuzzer(
        Coverage(net, [NLC()]), seeds.inputs, seeds.labels, levels=seeds.levels, folder=folder, wave=64, pictures=3
    )
    campaign = fuzzer.run(iterations, seconds=_SECONDS, progress=False)
    some = spread(campaign.faults, _DRAWN)
    shrunk = fuzzer.shrink(some)
    save_shrunk(CampaignFolder(folder), shrunk, fuzzer.mutations, fuzzer.space)
    page = fault_sheet(
        shrunk,
        seeds.inputs,
        fuzzer.space,
        fuzzer.mutations,
        classes=seeds.classes,
        title="left: a digit the network reads rightly; right: what makes it go wrong",
    )
    if page is not None:
        save_image(page, folder.parent / "faults.png")
    return campaign


def fuzz_words(campaign: Campaign, picture: Path) -> str:
    """What was found, in two sentences."""
    stats = campaign.stats
    if not campaign.faults:
        return f"fuzzing: {stats.judged:,} mutants judged in {stats.seconds:.0f} s, no fault among them"
    groups = campaign.groups()
    often = ", ".join(f"{group_words(group)} ({len(faults)}×)" for group, faults in list(groups.items())[:3])
    return (
        f"fuzzing: {stats.judged:,} mutants of test digits judged in {stats.seconds:.0f} s, {stats.kept:,} kept for "
        f"what they add to NLC, and {stats.faults:,} of those are misread though their origin is not: {often}, …. "
        f"Some are drawn in {picture}"
    )


def fuzz_figures(campaign: Campaign) -> dict[str, Any]:
    """Plain data for the results file."""
    stats = campaign.stats
    return {
        "seconds": stats.seconds,
        "judged": stats.judged,
        "kept": stats.kept,
        "faults": stats.faults,
        "classes": stats.classes,
        "entropy": stats.entropy,
        "NLC": dict(stats.values)["NLC"],
        "NLC of the seeds": dict(stats.values)["NLC"] - dict(stats.growth)["NLC"],
    }

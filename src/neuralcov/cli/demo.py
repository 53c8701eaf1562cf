"""``neuralcov demo``: train a small network on shipped digits, measure four suites, fuzz it, and say what came out."""

from __future__ import annotations

import shutil
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from rich.text import Text

from neuralcov import demo as shipped
from neuralcov.cli.console import output
from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CoverageWarning
from neuralcov.core.files import write_json
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.loaders import tracked
from neuralcov.criteria import ALL, DSC, KMNC, LCC, NC, NLC, SNAC
from neuralcov.fuzz import Brightness, Campaign, Contrast, Fuzzer, Mutation, Rotation, shear
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.writer import save_shrunk
from neuralcov.fuzz.faults.fault import group_words
from neuralcov.fuzz.faults.pictures import fault_sheet, pick_from_groups, save_image
from neuralcov.report.text import show_value
from neuralcov.sources.samples import Samples

_WHOLE = "test"
_NOISE_SEEDS = 10
_NOISE = 0.1
# Ended by count, so that every run gives the same.
_CALLS = 2_000
_DRAWN = 24


def demo(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Where results go.")] = Path("demo-results"),
) -> None:
    """See every criterion at work in half a minute, without downloading anything; ends with a page to open."""
    console = output()
    started = time.perf_counter()
    net = shipped.train_digits()
    test = shipped.digits("test")
    accuracy = _accuracy(net, test)
    console.print(
        f"trained a network of {_neurons(net)} neurons on 1,200 digits: {accuracy:.1%} of {len(test)} right",
        highlight=False,
    )
    suites = demo_suites(test)
    criteria: list[Criterion[Any]] = [cls() for cls in ALL]
    results = _measure(net, criteria, suites, folder)
    console.print(_table(results, suites))
    console.print(_verdict(results), soft_wrap=True, highlight=False)
    answer = report_suite(net, test, folder / "report.html")
    campaign = fuzz_digits(net, test, folder / "campaign")
    console.print(fuzz_words(campaign, len(test)), soft_wrap=True, highlight=False)
    content = {
        "accuracy": accuracy,
        "seconds": round(time.perf_counter() - started, 1),
        "inputs": {name: len(suite) for name, suite in suites.items()},
        "values": results,
        "ranked rightly": {name: ranks_rightly(values) for name, values in results.items()},
        "answer": answer,
        "fuzzing": fuzz_figures(campaign),
    }
    write_json(folder / "results.json", content)
    console.print()
    console.print(f"So, is the test set of this network fine? {answer}", soft_wrap=True, highlight=False)
    faults = f", the misread digits in {folder / 'faults.png'}" if campaign.faults else ""
    console.print(f"Open {folder / 'report.html'} for what that rests on{faults}.", soft_wrap=True, highlight=False)
    console.print(
        "Your own model: neuralcov measure my.package:build_model --data folder:test --calibrate folder:train"
    )


def report_suite(net: torch.nn.Module, test: Samples, page: Path) -> str:
    """Write a report on the test set, and say in two sentences how it stands."""
    coverage = Coverage(net, [LCC(), KMNC(100), SNAC(), DSC(0.1, layers="fc1")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        coverage.calibrate(shipped.digits("train").batches(), progress=False)
        coverage.assess(test.batches(), slices=["class"], keep_inputs=True, progress=False)
        coverage.report(page, model="the demo's network", suite="597 test digits")
        result = coverage.results()
    figures = result.details["LCC"]
    weakest = min(result.slices[0].rows, key=lambda row: row.alone["LCC"] or 0.0)
    alarms = result.sanity.alarms if result.sanity is not None else ()
    return (
        f"{'An alarm stands: see the page' if alarms else 'No alarm'}. The network meets {figures['relative']:.2f} "
        f"(± {figures['relative_error']:.2f}) times as many kinds of behaviour there as in as many training digits, "
        f"{figures['off_map']:.1%} of the digits are unlike anything in training ({figures['off_map_expected']:.1%} "
        f"expected), and {weakest.slice}s are the class it shows least of."
    )


def demo_suites(test: Samples) -> dict[str, Samples]:
    """Return the whole test set, a tenth of it, one class, and noisy copies of a few inputs, as many as it has."""
    rows = torch.randperm(len(test), generator=torch.Generator().manual_seed(1))
    few = test.take(rows[:_NOISE_SEEDS])
    copies = few.take(torch.arange(len(test)) % _NOISE_SEEDS)
    noise = torch.randn(copies.inputs.shape, generator=torch.Generator().manual_seed(2)).mul(_NOISE)
    noisy = (copies.pixels() + noise.clamp(-_NOISE, _NOISE)).clamp(0, 1)
    return {
        _WHOLE: test,
        "a tenth": test.take(rows[: len(test) // 10]),
        "one class": test.take(test.labels == 3),
        "noisy copies": Samples("noisy copies", noisy, copies.labels, test.classes),
    }


def ranks_rightly(values: dict[str, float]) -> bool:
    """Return whether the whole test set comes out above each of the poorer suites."""
    return all(values[_WHOLE] > value for name, value in values.items() if name != _WHOLE)


def gentle_mutations() -> list[Mutation]:
    """Return changes after which a person still reads the digit: of 8×8 pixels, a whole one less is too much."""
    return [
        Contrast((0.75, 0.85, 1.15, 1.3)),
        Brightness((16, 32)),
        Rotation(tuple(angle for angle in range(-9, 10, 3) if angle)),
        shear((-0.15, -0.1, 0.1, 0.15)),
    ]


def fuzz_digits(net: torch.nn.Module, seeds: Samples, folder: Path, calls: int = _CALLS) -> Campaign:
    """Run a short campaign, left in ``folder``; what an earlier demo left there gives way."""
    if (folder / "config.json").is_file():
        shutil.rmtree(folder)
    fuzzer = Fuzzer(
        Coverage(net, [NLC()]), seeds.inputs, seeds.labels, levels=seeds.levels, folder=folder, wave=64, pictures=3,
        mutations=gentle_mutations(), alpha=0.05, beta=0.25,
    )  # fmt: skip
    campaign = fuzzer.run(calls=calls, progress=False)
    some = pick_from_groups(campaign.faults, _DRAWN)
    shrunk = fuzzer.shrink(some)
    save_shrunk(CampaignFolder(folder), shrunk, fuzzer.mutations, fuzzer.input_format)
    page = fault_sheet(
        shrunk,
        seeds.inputs,
        fuzzer.input_format,
        fuzzer.mutations,
        classes=seeds.classes,
        title="left: a digit the network reads rightly; right: what makes it go wrong",
    )
    if page is not None:
        save_image(page, folder.parent / "faults.png")
    return campaign


def fuzz_words(campaign: Campaign, seeds: int) -> str:
    """Say what was found."""
    stats = campaign.stats
    tried = f"fuzzing: the network saw test digits a little turned, sheared, lighter or darker, {stats.judged:,} in all"
    if not campaign.faults:
        return f"{tried}, and misread none"
    groups = campaign.groups()
    often = ", ".join(f"{group_words(group)} ({len(faults)}×)" for group, faults in list(groups.items())[:3])
    return f"{tried}, and misread {stats.roots:,} of the {seeds:,} digits that way: {often}, …"


def fuzz_figures(campaign: Campaign) -> dict[str, Any]:
    """Return plain data for the results file."""
    stats = campaign.stats
    return {
        "seconds": stats.seconds,
        "judged": stats.judged,
        "kept": stats.kept,
        "faults": stats.faults,
        "different faults": stats.distinct,
        "digits misread": stats.roots,
        "classes": stats.classes,
        "entropy": stats.entropy,
        "NLC": dict(stats.values)["NLC"],
        "NLC of the seeds": dict(stats.values)["NLC"] - dict(stats.growth)["NLC"],
    }


def _measure(
    net: torch.nn.Module, criteria: list[Criterion[Any]], suites: dict[str, Samples], folder: Path
) -> dict[str, dict[str, float]]:
    coverage = Coverage(net, criteria)
    results: dict[str, dict[str, float]] = {criterion.name: {} for criterion in criteria}
    with warnings.catch_warnings():
        # Suites this small call for caution on every line; the closing sentence says so once.
        warnings.simplefilter("ignore", CoverageWarning)
        coverage.calibrate(shipped.digits("train").batches())
        coverage.save_calibration(folder / "training.ncal")
        for name, suite in tracked(suites.items(), "measuring"):
            coverage.reset()
            coverage.assess(suite.batches(), progress=False)
            for criterion, value in coverage.values().items():
                results[criterion][name] = value
            if name == _WHOLE:
                coverage.save(folder / "test.ncov")
    return results


def _table(results: dict[str, dict[str, float]], suites: dict[str, Samples]) -> Table:
    table = Table(title="coverage of four suites", title_justify="left")
    table.add_column("criterion", overflow="fold")
    for name, suite in suites.items():
        table.add_column(f"{name}\n({len(suite)})", justify="right")
    table.add_column("test above the others?")
    for criterion, values in results.items():
        beaten_by = [name for name, value in values.items() if name != _WHOLE and value >= values[_WHOLE]]
        verdict = Text("yes", "green") if not beaten_by else Text(f"no: {', '.join(beaten_by)}", "red")
        table.add_row(criterion, *(show_value(value) for value in values.values()), verdict)
    return table


def _verdict(results: dict[str, dict[str, float]]) -> str:
    right = [name for name, values in results.items() if ranks_rightly(values)]
    return (
        f"{len(right)} of {len(results)} criteria see that the test set is more varied than a tenth of it, one class "
        "alone, or noisy copies of ten digits."
    )


def _accuracy(net: torch.nn.Module, samples: Samples) -> float:
    with torch.no_grad():
        right = [int((net(inputs).argmax(1) == labels).sum()) for inputs, labels in samples.batches()]
    return sum(right) / len(samples)


def _neurons(net: torch.nn.Module) -> int:
    coverage = Coverage(net, [NC()])
    coverage.update(torch.zeros(1, 1, 8, 8))
    assert coverage.layout is not None
    return coverage.layout.neurons

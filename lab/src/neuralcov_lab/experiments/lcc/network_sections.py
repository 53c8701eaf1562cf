"""Write what the page of LCC's proof says of suites made to fool it, and of one network at many stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from neuralcov_lab.experiments.lcc.fooling import TEST
from neuralcov_lab.experiments.lcc.stability import CLASSES
from neuralcov_lab.experiments.lcc.subjects import ON_THE_SPOT
from neuralcov_lab.experiments.tables import fold, markdown

Results = Mapping[str, Mapping[str, Any]]
RELATIVE, VALUE = "LCC.relative", "LCC.value"
OFF_MAP, EXPECTED = "LCC.off_map", "LCC.expected_off_map"
# A suite counts as called more varied than the test inputs from here on.
_ABOVE = 1.01


def fooling_section(results: Results) -> list[str]:
    """Say which suites fool LCC and how often the others are fooled, then show every figure by network."""
    means = {subject: _means(result) for subject, result in results.items()}
    suites = list(dict.fromkeys(suite for own in means.values() for suite in own))
    rows = [
        [
            suite,
            *(
                f"{own[suite][RELATIVE]:.2f}, {_share(own[suite][OFF_MAP])}" if suite in own else "–"
                for own in means.values()
            ),
        ]
        for suite in suites
    ]
    names = [
        RELATIVE,
        VALUE,
        *(name for name in next(iter(means.values()))[TEST] if "LCC." not in name and name != "inputs"),
    ]
    fooled = [[name, *_counts(means, name)] for name in names]
    return [
        "## Suites made to fool it",
        fooling_takeaway(results),
        "`relative`, and the share of inputs off the map, by network; means over draws:",
        markdown(["suite", *means], rows),
        "Of these suites, how many each criterion calls more varied than the test inputs, by more than 1 %. Half of "
        "the classes and one class are fewer inputs, which lowers every figure but `relative`:",
        markdown(["criterion", "suites", *means], fooled),
        *(
            fold(f"{subject}: all figures, and other criteria as multiples of the test inputs'", _every(own))
            for subject, own in means.items()
        ),
    ]


def fooling_takeaway(results: Results) -> str:
    """Name the suites that ``relative`` puts above the test inputs, and on how many networks."""
    above: dict[str, int] = {}
    made: dict[str, int] = {}
    for result in results.values():
        own = _means(result)
        for suite in own:
            if suite != TEST:
                made[suite] = made.get(suite, 0) + 1
                above[suite] = above.get(suite, 0) + (own[suite][RELATIVE] > _ABOVE * own[TEST][RELATIVE])
    fooled = sorted((suite for suite in above if above[suite]), key=lambda suite: -above[suite] / made[suite])
    if not fooled:
        return "**No suite reads more varied than the test inputs under `relative`.**"
    said = "; ".join(f"{suite} (on {above[suite]} of {made[suite]})" for suite in fooled)
    return f"**`relative` is fooled by:** {said}. None of the {len(made) - len(fooled)} others is above them."


def _means(result: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {
        suite: {name: mean(draw[name] for draw in draws) for name in draws[0]}
        for suite, draws in result["suites"].items()
    }


def _counts(means: Mapping[str, Mapping[str, Mapping[str, float]]], name: str) -> list[str]:
    """Return in how many of all suites, and of each network's, a criterion is above its value of the test inputs."""
    by_network = [
        [own[suite][name] > _ABOVE * own[TEST][name] for suite in own if suite != TEST] for own in means.values()
    ]
    every = [above for some in by_network for above in some]
    return [f"{sum(some)} of {len(some)}" for some in (every, *by_network)]


def _every(means: Mapping[str, Mapping[str, float]]) -> str:
    base = means[TEST]
    own = [name for name in base if name.startswith("LCC.") and name != EXPECTED]
    others = [name for name in base if not name.startswith("LCC.") and name != "inputs"]
    rows = [
        [
            suite,
            f"{round(found['inputs']):,}",
            *(f"{found[name]:.3f}" for name in own),
            *(f"{found[name] / base[name]:.2f}" if base[name] else "–" for name in others),
        ]
        for suite, found in means.items()
    ]
    table = markdown(["suite", "inputs", *(name.removeprefix("LCC.") for name in own), *others], rows)
    return f"Fresh training inputs are expected to lie off the map in {base[EXPECTED]:.2%} of cases.\n\n{table}"


def _share(value: float) -> str:
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def stability_section(results: Results) -> list[str]:
    """Show how far each criterion moves over checkpoints and seeds of one network."""
    sections = [
        "## Across checkpoints and seeds",
        stability_takeaway(results),
        "The same test inputs on every model, calibrated anew for each: deviation over mean, in per cent. The last "
        "column tells how many such deviations, over all models, the gap between the test inputs and as many of half "
        "the classes is: below 2, a gate would not see that half of the classes are missing.",
    ]
    for subject, result in results.items():
        models = result["models"]
        last = max(model["steps"] for model in models)
        rows = []
        for name in models[0]["suites"][TEST]:
            every = [model["suites"][TEST][name] for model in models]
            late = [m["suites"][TEST][name] for m in models if m["steps"] * 4 >= last]
            ends = [m["suites"][TEST][name] for m in models if m["steps"] == last]
            shown = f"{min(every):.3g} to {max(every):.3g}"
            rows.append([name, shown, *(_spread(some) for some in (every, late, ends)), _gap(models, name)])
        accuracy = [model["accuracy"] for model in models]
        seeds = len({model["seed"] for model in models})
        steps = sorted({model["steps"] for model in models})
        # Networks that were not trained on the spot were kept after every epoch.
        unit = "steps" if subject.partition("-")[2] in ON_THE_SPOT else "epochs"
        header = ["criterion", "values", "all models", "last quarter", "seeds at the end", "gap / deviation"]
        sections += [
            f"### {subject}",
            f"{seeds} seeds, checkpoints after {', '.join(map(str, steps))} {unit}, accuracy {min(accuracy):.1%} to "
            f"{max(accuracy):.1%}, {result['inputs']:,} inputs.",
            markdown(header, rows),
        ]
    return [*sections, "![Values on all models, as multiples of their means](plots/lcc-stability.png)"]


def stability_takeaway(results: Results) -> str:
    """Say by how much ``relative`` varies, and which criteria would let half of the classes go missing."""
    varied: list[str] = []
    seen: set[str] = set()
    unseen: set[str] = set()
    for result in results.values():
        models = result["models"]
        varied.append(_spread([model["suites"][TEST][RELATIVE] for model in models]))
        for name in models[0]["suites"][TEST]:
            (unseen if _in_deviations(models, name) < 2 else seen).add(name)
    always = sorted(seen - unseen)
    said = (
        f"**Over checkpoints and seeds `relative` of one suite varies by {', '.join(varied)}** (deviation over mean)."
    )
    if always:
        said += f" Half of the classes missing shows everywhere under {', '.join(always)}."
    if unseen:
        said += f" On some network it does not under {', '.join(sorted(unseen))}."
    return said


def _in_deviations(models: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the gap to half of the classes in deviations over all models; 0 if nothing moves."""
    every = [model["suites"][TEST][name] for model in models]
    deviation = stdev(every) if len(every) > 1 else 0.0
    gap = mean(m["suites"][TEST][name] - m["suites"][CLASSES][name] for m in models)
    return gap / deviation if deviation else 0.0


def _gap(models: Sequence[Mapping[str, Any]], name: str) -> str:
    every = {model["suites"][TEST][name] for model in models}
    return f"{_in_deviations(models, name):.1f}" if len(every) > 1 else "–"


def _spread(values: Sequence[float]) -> str:
    middle = mean(values)
    return f"{stdev(values) / abs(middle):.1%}" if len(values) > 1 and middle else "–"

"""Ground-truth orders: which suite should come out above which, and which criteria say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import mean, stdev
from typing import Any

from neuralcov_lab.experiments.cells import CellFolder

ON_TOP, ALONE, EQUAL = "on top of training data", "alone", "at equal size"
NOTHING = "nothing"
_KEYS = {ON_TOP: "increase", ALONE: "own"}
_PAIRS = (
    ("test, as many as five classes", "five classes"),
    ("test, as many as one class", "one class"),
    ("test", "noisy copies, normalised"),
    ("test", "noisy copies, pixel"),
    ("PGD", "test, as many as PGD"),
    ("test, as many as perturbed", "perturbed"),
)


@dataclass(frozen=True)
class Comparison:
    """Suites in the order they should come out, largest first, and what criteria made of them.

    Args:
        experiment: whose.
        subject: the network.
        label: what sets it apart from others of the experiment.
        basis: how suites were measured.
        suites: in order.
        sizes: their inputs.
        runs: by criterion and run, one value per suite.
    """

    experiment: str
    subject: str
    label: str
    basis: str
    suites: tuple[str, ...]
    sizes: tuple[int, ...]
    runs: Mapping[str, Sequence[Sequence[float]]]

    def means(self, criterion: str) -> list[float]:
        """Mean over runs, by suite."""
        return [mean(values) for values in zip(*self.runs[criterion], strict=True)]

    def spreads(self, criterion: str) -> list[float]:
        """Standard deviation over runs, by suite; 0 for a single run."""
        columns = zip(*self.runs[criterion], strict=True)
        return [stdev(values) if len(values) > 1 else 0.0 for values in columns]

    def right(self, criterion: str) -> bool:
        """Whether the means fall strictly along the order."""
        return _falls(self.means(criterion))

    def pairs(self, criterion: str) -> list[bool]:
        """For every two suites whether the means put them right, neighbours or not."""
        return [above > below for above, below in combinations(self.means(criterion), 2)]

    def runs_right(self, criterion: str) -> int:
        """In how many runs the values do."""
        return sum(_falls(values) for values in self.runs[criterion])

    def to_json(self) -> dict[str, Any]:
        """Plain data, verdicts included."""
        return {
            "experiment": self.experiment,
            "subject": self.subject,
            "label": self.label,
            "basis": self.basis,
            "order": list(self.suites),
            "inputs": list(self.sizes),
            "criteria": {
                name: {
                    "means": self.means(name),
                    "spreads": self.spreads(name),
                    "runs": len(self.runs[name]),
                    "right": self.right(name),
                    "runs right": self.runs_right(name),
                }
                for name in self.runs
            },
        }


def comparisons(folder: CellFolder) -> list[Comparison]:
    """All that finished cells allow."""
    found = dict(folder.results())
    results = {name: content["result"] for name, content in found.items()}
    parameters = {name: content["parameters"] for name, content in found.items()}
    return [
        *_noise(results, parameters),
        *_equal(results, parameters),
        *_paths(results, parameters),
        *_paper_batches(results, parameters),
        *_text(results),
        *_generative(results),
        *_attacks(results, parameters),
    ]


def _falls(values: Sequence[float]) -> bool:
    return all(above > below for above, below in pairwise(values))


def _reading(result: Mapping[str, Any], suite: str) -> Mapping[str, Any]:
    reading: Mapping[str, Any] = result["suites"][suite][-1]
    return reading


def _compare(
    experiment: str, subject: str, label: str, basis: str, suites: Sequence[str], runs: Sequence[Mapping[str, Any]]
) -> Comparison:
    """From readings by run and suite, of criteria that every run followed through every suite."""
    key = _KEYS[basis]
    measured = [run[suite][key] for run in runs for suite in suites if suite != NOTHING]
    names = [name for name in measured[0] if all(name in values for values in measured)]
    values = {name: [[0.0 if s == NOTHING else run[s][key][name] for s in suites] for run in runs] for name in names}
    sizes = tuple(0 if suite == NOTHING else runs[0][suite]["inputs"] for suite in suites)
    return Comparison(experiment, subject, label, basis, tuple(suites), sizes, values)


def _noise(results: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Comparison]:
    grouped: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for name, result in results.items():
        given = parameters[name]
        if name.startswith("diversity-image.") and "unit" in given and f"test.{given['network']}" in results:
            test = _reading(results[f"test.{given['network']}"], "test")
            run = {"test": test} | {suite: _reading(result, suite) for suite in result["suites"]}
            grouped.setdefault((given["network"], given["unit"], given["noise"]), []).append(run)
    for (network, unit, noise), runs in grouped.items():
        largest_first = sorted((suite for suite in runs[0] if suite != "test"), key=lambda s: -int(s[1:]))
        yield from _copies("diversity-image", network, f"noise ±{noise:g}, {unit} units", largest_first, runs)


def _copies(
    experiment: str, subject: str, label: str, largest_first: Sequence[str], runs: Sequence[Mapping[str, Any]]
) -> Iterator[Comparison]:
    """The test suite above copies, more copies above fewer."""
    yield _compare(experiment, subject, label, ON_TOP, ("test", *largest_first), runs)
    alone = _compare(experiment, subject, label, ALONE, ("test", *largest_first), runs)
    yield alone
    # Criteria that did not follow the larger suite on its own are judged on the smaller one.
    fewer = _compare(
        experiment, subject, f"{label}, {largest_first[-1]} only", ALONE, ("test", largest_first[-1]), runs
    )
    rest = {name: values for name, values in fewer.runs.items() if name not in alone.runs}
    if rest:
        yield replace(fewer, runs=rest)


def _equal(results: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Comparison]:
    for name, result in results.items():
        if not name.endswith((".equal", ".paths")):
            continue
        draws = result["draws"]
        for above, below in _PAIRS:
            first, second = draws[above], draws[below]
            pairs = list(zip(first["values"], second["values"], strict=True))
            values = {c: [[a[c], b[c]] for a, b in pairs] for c in first["values"][0]}
            suites = tuple(suite.partition(", as many")[0] for suite in (above, below))
            yield Comparison(
                "diversity-image",
                parameters[name]["network"],
                f"{suites[0]} > {suites[1]}",
                EQUAL,
                suites,
                (first["inputs"], second["inputs"]),
                values,
            )


def _paths(results: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Comparison]:
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for name, result in results.items():
        if name.partition(".run")[0].endswith(".paths"):
            run = {suite: _reading(result, suite) for suite in result["suites"]}
            grouped.setdefault(parameters[name]["network"], []).append(run)
    for network, runs in grouped.items():
        for basis in (ON_TOP, ALONE):
            for suite in (suite for suite in runs[0] if suite.startswith("x1 ")):
                _, unit, noise = suite.split()
                plain = [{"test": run["test"], "x1": run[suite]} for run in runs]
                label = f"noise ±{noise}, {unit} units, x1 only"
                yield _compare("diversity-image", network, label, basis, ("test", "x1"), plain)
            yield _compare("faults", network, "PGD", basis, ("PGD", "test"), runs)
            on_test = [{"PGD": run["PGD test"], "test": run["test"]} for run in runs]
            yield _compare("faults-test", network, "PGD", basis, ("PGD", "test"), on_test)
            yield _compare("perturbations", network, "PGD", basis, ("test", "AP PGD", NOTHING), runs)


def _paper_batches(results: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Comparison]:
    for name, result in results.items():
        if not name.endswith(".paper-batches"):
            continue
        network, noise = parameters[name]["network"], parameters[name]["noise"]
        run = {suite: _reading(result, suite) for suite in result["suites"]}
        fed = f"in batches of {result['chunk']}"
        for unit in ("normalised", "pixel"):
            largest_first = sorted((s for s in run if s.endswith(f" {unit}")), key=lambda s: -int(s.split()[0][1:]))
            plain = {"test": run["test"]} | {suite.split()[0]: run[suite] for suite in largest_first}
            label = f"noise ±{noise:g}, {unit} units, {fed}"
            for basis in (ON_TOP, ALONE):
                yield _compare("diversity-image", network, label, basis, tuple(plain), [plain])
        for basis in (ON_TOP, ALONE):
            yield _compare("faults", network, f"PGD, {fed}", basis, ("PGD", "test"), [run])


def _text(results: Mapping[str, Any]) -> Iterator[Comparison]:
    if "diversity-text.test" not in results:
        return
    test = _reading(results["diversity-text.test"], "test")
    runs = [
        {"test": test} | {suite: _reading(result, suite) for suite in result["suites"]}
        for name, result in results.items()
        if name.startswith("diversity-text.shuffled")
    ]
    if runs:
        largest_first = sorted((suite for suite in runs[0] if suite != "test"), key=lambda s: -int(s[1:]))
        yield from _copies("diversity-text", "lstm", "shuffled words", largest_first, runs)


def _generative(results: Mapping[str, Any]) -> Iterator[Comparison]:
    runs = [
        {suite: _reading(result, suite) for suite in result["suites"]}
        for name, result in results.items()
        if name.startswith("diversity-generative.")
    ]
    if runs:
        yield _compare("diversity-generative", "generator", "schemes", ALONE, tuple(runs[0]), runs)


def _attacks(results: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Comparison]:
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for name, result in results.items():
        experiment = name.partition(".")[0]
        if experiment in ("faults", "faults-test", "perturbations"):
            network, method = parameters[name]["network"], parameters[name]["method"]
            if f"test.{network}" in results:
                suite = next(iter(result["suites"]))
                run = {suite: _reading(result, suite), "test": _reading(results[f"test.{network}"], "test")}
                grouped.setdefault((experiment, network, method), []).append(run)
    for (experiment, network, method), runs in grouped.items():
        suite = next(iter(runs[0]))
        order = ("test", suite, NOTHING) if experiment == "perturbations" else (suite, "test")
        for basis in (ON_TOP, ALONE):
            yield _compare(experiment, network, method, basis, order, runs)

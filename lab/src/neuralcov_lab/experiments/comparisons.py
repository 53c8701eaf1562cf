"""Judge ground-truth orders: which suite should come out above which, and which criteria say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import mean, stdev
from typing import Any

from neuralcov_lab.experiments.companions import joined, strangers
from neuralcov_lab.experiments.jobs import JobFolder, JobResult

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
    """Hold suites in the order they should come out, largest first, and what criteria made of them.

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
        """Return the mean over runs, by suite."""
        return [mean(values) for values in zip(*self.runs[criterion], strict=True)]

    def deviations(self, criterion: str) -> list[float]:
        """Return the standard deviation over runs, by suite; 0 for a single run."""
        columns = zip(*self.runs[criterion], strict=True)
        return [stdev(values) if len(values) > 1 else 0.0 for values in columns]

    def right(self, criterion: str) -> bool:
        """Return whether the means fall strictly along the order."""
        return _falls(self.means(criterion))

    def pairs(self, criterion: str) -> list[bool]:
        """Return, for every two suites, whether the means put them right, neighbours or not."""
        return [above > below for above, below in combinations(self.means(criterion), 2)]

    def runs_right(self, criterion: str) -> int:
        """Return in how many runs the values do."""
        return sum(_falls(values) for values in self.runs[criterion])

    def to_json(self) -> dict[str, Any]:
        """Return plain data, verdicts included."""
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
                    "spreads": self.deviations(name),
                    "runs": len(self.runs[name]),
                    "right": self.right(name),
                    "runs right": self.runs_right(name),
                }
                for name in self.runs
            },
        }


def comparisons(folder: JobFolder) -> list[Comparison]:
    """Make all comparisons that finished jobs allow."""
    results = list(folder.results())
    again = _judged(strangers(results))
    return [*_judged(joined(results)), *(replace(c, subject=f"{c.subject}, trained again") for c in again)]


def _judged(jobs: Sequence[JobResult]) -> list[Comparison]:
    return [
        *_noise(jobs),
        *_equal(jobs),
        *_paths(jobs),
        *_paper_batches(jobs),
        *_text(jobs),
        *_generative(jobs),
        *_attacks(jobs),
    ]


def _falls(values: Sequence[float]) -> bool:
    return all(above > below for above, below in pairwise(values))


def _reading(result: Mapping[str, Any], suite: str) -> Mapping[str, Any]:
    reading: Mapping[str, Any] = result["suites"][suite][-1]
    return reading


def _compare(
    experiment: str, subject: str, label: str, basis: str, suites: Sequence[str], runs: Sequence[Mapping[str, Any]]
) -> Comparison:
    """Compare readings by run and suite, of criteria that every run of theirs followed through every suite.

    Criteria that came later may have been measured in some of the runs.
    """
    key, shown = _KEYS[basis], [suite for suite in suites if suite != NOTHING]
    values = {}
    for name in dict.fromkeys(name for run in runs for name in run[shown[0]][key]):
        own = [run for run in runs if all(name in run[suite]["increase"] for suite in shown)]
        if own and all(name in run[suite][key] for run in own for suite in shown):
            values[name] = [[0.0 if s == NOTHING else run[s][key][name] for s in suites] for run in own]
    sizes = tuple(0 if suite == NOTHING else runs[0][suite]["inputs"] for suite in suites)
    return Comparison(experiment, subject, label, basis, tuple(suites), sizes, values)


def _readings(job: JobResult) -> dict[str, Mapping[str, Any]]:
    """Return the last reading of every suite of a job."""
    return {suite: _reading(job.result, suite) for suite in job.result["suites"]}


def _test_suites(jobs: Sequence[JobResult]) -> dict[str, Mapping[str, Any]]:
    """Return, by network, the reading of its test suite, which several experiments compare with."""
    return {
        job.parameters["network"]: _reading(job.result, "test")
        for job in jobs
        if job.belongs_to("diversity-image") and set(job.parameters) == {"network"}
    }


def _noise(jobs: Sequence[JobResult]) -> Iterator[Comparison]:
    grouped: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    tests = _test_suites(jobs)
    for job in jobs:
        given = job.parameters
        if job.belongs_to("diversity-image") and "unit" in given and given["network"] in tests:
            run = {"test": tests[given["network"]]} | _readings(job)
            grouped.setdefault((given["network"], given["unit"], given["noise"]), []).append(run)
    for (network, unit, noise), runs in grouped.items():
        label = f"noise ±{noise:g}, {unit} units"
        yield from compare_copies("diversity-image", network, label, _largest_first(runs[0]), runs)


def _largest_first(run: Mapping[str, Any]) -> list[str]:
    """Return the suites of copies, x10 before x1."""
    return sorted((suite for suite in run if suite != "test"), key=lambda suite: -int(suite[1:]))


def compare_copies(
    experiment: str, subject: str, label: str, largest_first: Sequence[str], runs: Sequence[Mapping[str, Any]]
) -> Iterator[Comparison]:
    """Compare the test suite with copies: it should come out above them, more copies above fewer."""
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


def _equal(jobs: Sequence[JobResult]) -> Iterator[Comparison]:
    for job in jobs:
        if "draws" not in job.result:
            continue
        draws = job.result["draws"]
        for above, below in _PAIRS:
            first, second = draws[above], draws[below]
            pairs = list(zip(first["values"], second["values"], strict=True))
            # Criteria that came later were measured on more draws; the first ones are the same.
            values = {c: [[a[c], b[c]] for a, b in pairs if c in a and c in b] for c in first["values"][0]}
            suites = tuple(suite.partition(", as many")[0] for suite in (above, below))
            yield Comparison(
                "diversity-image",
                job.parameters["network"],
                f"{suites[0]} > {suites[1]}",
                EQUAL,
                suites,
                (first["inputs"], second["inputs"]),
                values,
            )


def _paths(jobs: Sequence[JobResult]) -> Iterator[Comparison]:
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for job in jobs:
        if "noises" in job.parameters:
            grouped.setdefault(job.parameters["network"], []).append(_readings(job))
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


def _paper_batches(jobs: Sequence[JobResult]) -> Iterator[Comparison]:
    for job in jobs:
        if "chunk" not in job.result:
            continue
        network, noise, run = job.parameters["network"], job.parameters["noise"], _readings(job)
        fed = f"in batches of {job.result['chunk']}"
        for unit in ("normalised", "pixel"):
            largest_first = sorted((s for s in run if s.endswith(f" {unit}")), key=lambda s: -int(s.split()[0][1:]))
            plain = {"test": run["test"]} | {suite.split()[0]: run[suite] for suite in largest_first}
            label = f"noise ±{noise:g}, {unit} units, {fed}"
            for basis in (ON_TOP, ALONE):
                yield _compare("diversity-image", network, label, basis, tuple(plain), [plain])
        for basis in (ON_TOP, ALONE):
            yield _compare("faults", network, f"PGD, {fed}", basis, ("PGD", "test"), [run])


def _text(jobs: Sequence[JobResult]) -> Iterator[Comparison]:
    reviews = [job for job in jobs if job.belongs_to("diversity-text")]
    test = next((_reading(job.result, "test") for job in reviews if "run" not in job.parameters), None)
    if test is None:
        return
    runs = [{"test": test} | _readings(job) for job in reviews if "run" in job.parameters]
    if runs:
        yield from compare_copies("diversity-text", "lstm", "shuffled words", _largest_first(runs[0]), runs)


def _generative(jobs: Sequence[JobResult]) -> Iterator[Comparison]:
    runs = [_readings(job) for job in jobs if job.belongs_to("diversity-generative")]
    if runs:
        yield _compare("diversity-generative", "generator", "schemes", ALONE, tuple(runs[0]), runs)


def _attacks(jobs: Sequence[JobResult]) -> Iterator[Comparison]:
    grouped: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    tests = _test_suites(jobs)
    for job in jobs:
        given = job.parameters
        if "method" in given and given["network"] in tests:
            run = _readings(job) | {"test": tests[given["network"]]}
            grouped.setdefault((job.experiments[0], given["network"], given["method"]), []).append(run)
    for (experiment, network, method), runs in grouped.items():
        suite = next(iter(runs[0]))
        order = ("test", suite, NOTHING) if experiment == "perturbations" else (suite, "test")
        for basis in (ON_TOP, ALONE):
            yield _compare(experiment, network, method, basis, order, runs)

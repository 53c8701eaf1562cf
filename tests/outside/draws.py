"""Random cases, one per number: a criterion with settings, what it learns from, and inputs for it."""

from dataclasses import dataclass

import numpy as np
import torch

import neuralcov as nc
from neuralcov.testing import oracles
from neuralcov.testing.oracles import Suite

FLAVOURS = ("smooth", "smooth", "ties", "rectified", "scaled", "constant", "one value")
DTYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass
class Drawn:
    """A case: ours and theirs, training data, a suite and further inputs."""

    number: int
    rng: np.random.Generator
    kind: str
    dtype: torch.dtype
    criterion: object
    oracle: oracles.Oracle
    training: Suite
    suite: Suite
    candidates: Suite
    held_out: Suite | None

    def __str__(self):
        widths = [part.shape[1] for part in self.training.layers.values()]
        return f"case {self.number}: {self.criterion.name}, widths {widths}, {len(self.suite)} inputs, {self.dtype}"


def draw(number):
    """The case of a number, the same whenever it is asked for."""
    rng = np.random.default_rng(number)
    kind = KINDS[number % len(KINDS)]
    widths = [int(w) for w in rng.integers(1, 8, rng.integers(1, 5))]
    if rng.random() < 0.15:
        widths[rng.integers(len(widths))] = int(rng.integers(30, 140))
    flavour, dtype = str(rng.choice(FLAVOURS)), DTYPES[rng.integers(len(DTYPES))]
    if kind in ("LVC", "LSC", "DSC", "MDSC") and flavour in ("constant", "one value"):
        widths = [*widths, 3]  # something must vary
    classes = int(rng.integers(1, 5))

    def suite_of(size, spread=1.0):
        return _suite(rng, widths, size, flavour, dtype, classes, spread)

    training = suite_of(int(rng.integers(6, 40)))
    training.labels[0] = training.predictions[0]  # NPC learns from what is classified correctly
    suite = suite_of(int(rng.choice([1, 2, 3, 7, 12, 23])), 1.3)
    candidates = suite_of(int(rng.integers(1, 6)), 1.6)
    _share_inputs(rng, training, suite, candidates)
    for some in (suite, candidates):
        _spoil(rng, some)
    held_out = suite_of(int(rng.integers(2, 12))) if kind == "LVC" and rng.random() < 0.3 else None
    criterion, oracle = KINDS_OF[kind](rng, training, held_out, dtype)
    return Drawn(number, rng, kind, dtype, criterion, oracle, training, suite, candidates, held_out)


def _suite(rng, widths, size, flavour, dtype, classes, spread):
    layers = {}
    for index, width in enumerate(widths):
        values = spread * rng.standard_normal((size, width))
        last = index == len(widths) - 1
        if flavour == "ties":
            values = np.round(2 * values)
        elif flavour == "rectified":
            values = np.maximum(values, 0)
        elif flavour == "scaled":
            values = values * 1e3 + 3e3 if last else values * 1e-2
        elif flavour == "constant" and index == 0:
            values = np.full_like(values, 0.25)
        elif flavour == "one value" and index == 0:
            values[:, 0] = -1.5
        layers[f"layer{index}"] = _rounded(values, dtype)
    labels = rng.integers(0, classes, size)
    right = rng.random(size) < 0.6
    relevance = {
        name: (np.round(2 * r) if flavour == "ties" else r).astype(np.float32).astype(np.float64)
        for name, r in ((name, rng.standard_normal(part.shape)) for name, part in layers.items())
    }
    return Suite(layers, labels, np.where(right, labels, rng.integers(0, classes, size)), relevance)


def _rounded(values, dtype):
    """What the type holds of the numbers, as float64."""
    return torch.from_numpy(values).to(dtype).double().numpy()


def _share_inputs(rng, training, suite, candidates):
    """Some inputs occur in several suites, and twice in one."""
    for to, source in ((suite, training), (candidates, training), (candidates, suite), (suite, suite)):
        if rng.random() < 0.4:
            mine, theirs = rng.integers(len(to)), rng.integers(len(source))
            for name in to.layers:
                to.layers[name][mine] = source.layers[name][theirs]
                to.relevance[name][mine] = source.relevance[name][theirs]
            to.labels[mine], to.predictions[mine] = source.labels[theirs], source.predictions[theirs]


def _spoil(rng, suite):
    """NaN or infinity in some inputs, steps that some lack, classes that training never saw."""
    names = list(suite.layers)
    if rng.random() < 0.2:
        name = str(rng.choice(names))
        spot = rng.integers(len(suite)), rng.integers(suite.layers[name].shape[1])
        suite.layers[name][spot] = rng.choice([np.nan, np.inf, -np.inf])
    if rng.random() < 0.25:
        name = names[-1]
        suite.present[name] = rng.random(len(suite)) < 0.7
        suite.layers[name][~suite.present[name]] = 0
    if rng.random() < 0.1:
        suite.labels[rng.integers(len(suite))] = 9
        suite.predictions[rng.integers(len(suite))] = 9


# Criteria with their oracles


def _nc(rng, training, held_out, dtype):
    threshold = float(rng.choice([0.0, 0.25, 0.5, 0.75, rng.random()]))
    return nc.NC(threshold), oracles.NC(training, threshold=threshold)


def _kmnc(rng, training, held_out, dtype):
    sections = int(rng.choice([1, 2, 7, 10, 100]))
    return nc.KMNC(sections), oracles.KMNC(training, sections=sections)


def _nbc(rng, training, held_out, dtype):
    return nc.NBC(), oracles.NBC(training)


def _snac(rng, training, held_out, dtype):
    return nc.SNAC(), oracles.SNAC(training)


def _tknc(rng, training, held_out, dtype):
    k = int(rng.choice([1, 2, 3, 10]))
    return nc.TKNC(k), oracles.TKNC(training, k=k)


def _tknp(rng, training, held_out, dtype):
    k = int(rng.choice([1, 2, 3, 10]))
    return nc.TKNP(k), oracles.TKNP(training, k=k)


def _ss(rng, training, held_out, dtype):
    return nc.SS(), oracles.SS(training)


def _cc(rng, training, held_out, dtype):
    distance, squared = float(rng.choice([0, 1, 2, 5])), bool(rng.integers(2))
    return nc.CC(distance, squared=squared), oracles.CC(training, distance=distance, squared=squared)


def _nlc(rule):
    def made(rng, training, held_out, dtype):
        classes = None if rng.random() < 0.6 else int(rng.integers(1, 4))
        digits = 1e-3 if dtype == torch.float64 else 1.0
        return nc.NLC(rule=rule, classes=classes), oracles.NLC(training, rule=rule, classes=classes, digits=digits)

    return made


def _lvc(rng, training, held_out, dtype):
    relative, ridge = held_out is not None or bool(rng.integers(2)), float(rng.choice([1e-4, 1e-2]))
    ours = nc.LVC(relative=relative, ridge=ridge)
    return ours, oracles.LVC(training, relative=relative, ridge=ridge, held_out=held_out)


def _surprise(rng, by=("predicted", "label", None)):
    upper = None if rng.random() < 0.7 else float(rng.choice([1.0, 2.0, 35.0]))
    chosen = by[rng.integers(len(by))]
    return {"by": chosen, "upper": upper, "min_variance": float(rng.choice([1e-5, 0.0]))}


def _lsc(rng, training, held_out, dtype):
    settings = _surprise(rng)
    bucket, bandwidth = float(rng.choice([1, 10])), float(rng.choice([0.2, 1.0]))
    ours = nc.LSC(bucket, bandwidth, **settings)
    return ours, oracles.LSC(training, bucket=bucket, bandwidth=bandwidth, **settings)


def _dsc(rng, training, held_out, dtype):
    settings, bucket = _surprise(rng, ("predicted", "label")), float(rng.choice([0.1, 0.5]))
    return nc.DSC(bucket, **settings), oracles.DSC(training, bucket=bucket, **settings)


def _mdsc(rng, training, held_out, dtype):
    settings, bucket = _surprise(rng), float(rng.choice([0.5, 3.0]))
    return nc.MDSC(bucket, **settings), oracles.MDSC(training, bucket=bucket, ridge=1e-2, **settings)


def _npc(mode):
    def made(rng, training, held_out, dtype):
        alpha, beta = float(rng.choice([0.3, 0.5, 0.7, 1.0])), float(rng.choice([0.2, 0.7]))
        buckets = int(rng.integers(1, 12))
        ours = nc.NPC(alpha, beta, 1, buckets, mode)
        return ours, oracles.NPC(training, alpha=alpha, beta=beta, buckets=buckets, mode=mode)

    return made


KINDS_OF = {
    "NC": _nc, "KMNC": _kmnc, "NBC": _nbc, "SNAC": _snac, "TKNC": _tknc, "TKNP": _tknp, "SS": _ss, "CC": _cc,
    "NLC growing": _nlc("growing"), "NLC all": _nlc("all"), "LVC": _lvc, "LSC": _lsc, "DSC": _dsc, "MDSC": _mdsc,
    "NPC structure": _npc("structure"), "NPC activation": _npc("activation"),
}  # fmt: skip
KINDS = tuple(KINDS_OF)

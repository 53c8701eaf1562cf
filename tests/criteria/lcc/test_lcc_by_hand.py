"""LCC against a second brute force, written from the definition's text by somebody who had not seen the code."""

import random

import pytest
import torch

import neuralcov as nc
from tests.criteria.lcc.by_hand import LCCByHand, Suite

FLAVOURS = ["smooth", "ties", "rectified", "scaled", "constant"]
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.core.errors.CoverageWarning")


def inputs(generator, widths, size, *, decisions, spread=1.0, flavour="smooth", absent=False):
    """The same inputs for LCC and for the brute force, with content keys at random, which deal folds."""
    layers, present = {}, {}
    for index, width in enumerate(widths):
        values = spread * torch.randn(size, width, generator=generator)
        if flavour == "ties":
            values = values.round()
        if flavour == "rectified":
            values = values.relu()
        if flavour == "scaled" and index == 0:
            values = values * 1e4
        if flavour == "constant" and index == len(widths) - 1:
            values = torch.full_like(values, 0.25)
        layers[f"layer{index}"] = values
    if absent:
        name, there = list(layers)[-1], torch.rand(size, generator=generator) < 0.6
        present[name] = there
        layers[name] = layers[name].masked_fill(~there[:, None], 0)
    keys = torch.randint(-(2**62), 2**62, (size, 2), generator=generator)
    classes = torch.randint(0, 3, (size,), generator=generator) if decisions else None
    rows = {
        name: [
            row if name not in present or bool(present[name][number]) else None
            for number, row in enumerate(values.double().tolist())
        ]
        for name, values in layers.items()
    }
    plain = Suite(
        rows, None if classes is None else classes.tolist(), [key % 2**64 % 10 for key in keys[:, 0].tolist()]
    )
    return nc.Activations(layers, predictions=classes, present=present, keys=keys), plain


def case(number):
    """Settings, training data, a suite and candidates, all of odd sizes."""
    draw, generator = random.Random(number), torch.Generator().manual_seed(number)
    widths = [draw.choice([1, 2, 3, 5, 7]) for _ in range(draw.randint(1, 4))]
    flavour = draw.choice(FLAVOURS if len(widths) > 1 else FLAVOURS[:3])
    decisions, spread = draw.random() < 0.7, draw.choice([0.5, 1.0, 2.0, 50.0])
    settings = {
        "resolution": draw.choice([0.3, 0.5, 1.0]),
        "directions": draw.choice([1, 2, 3, 8]),
        "over": draw.choice(["median", "mean", "trimmed"]),
        "seed": draw.randint(0, 3),
    }
    training, suite, further = (
        inputs(
            generator,
            widths,
            draw.choice(sizes),
            decisions=decisions,
            flavour=flavour,
            spread=own,
            absent=draw.random() < 0.3,
        )
        for sizes, own in (
            ([2, 3, 9, 50, 99, 100, 101, 150, 300], 1.0),
            ([1, 2, 3, 7, 20, 61, 128], spread),
            ([3], 1.3),
        )
    )
    return settings, training, suite, further


def together(first, second):
    """One suite of two."""
    layers = {name: [*rows, *second.layers[name]] for name, rows in first.layers.items()}
    decisions = None if first.decisions is None else [*first.decisions, *second.decisions]
    return Suite(layers, decisions, [*first.folds, *second.folds])


def only(suite, number):
    return Suite(
        {name: rows[number : number + 1] for name, rows in suite.layers.items()},
        None if suite.decisions is None else suite.decisions[number : number + 1],
        suite.folds[number : number + 1],
    )


def close(value):
    return None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("block", range(8))
def test_every_figure_is_as_by_hand(block):
    judged = 0
    for number in range(20 * block, 20 * block + 20):
        settings, (training, plain_training), (suite, plain), (further, candidates) = case(number)
        expected = LCCByHand(plain_training, **settings)
        if not expected.layers:
            continue
        criterion = nc.LCC(**settings)
        name, widths = criterion.name, training.layout.widths
        cut = number % (suite.size + 1)
        parts = []
        for rows in (slice(0, cut), slice(cut, suite.size)):
            part = nc.Coverage.of_layers(widths, [criterion])
            part.calibrate(activations=training, progress=False)
            if suite.take(rows).size:
                part.update(activations=suite.take(rows))
            parts.append(part)
        coverage, other = parts
        coverage.merge(other)

        value = expected.value(plain)
        assert coverage.values()[name] == close(value), number
        figures, found = expected.figures(plain), coverage.details().get(name, {})
        if any(row is not None for layer in expected.layers for row in plain.layers[layer.name]):
            judged += 1
            for figure, wanted in figures.items():
                assert found.get(figure) == close(wanted), (number, figure)
        else:
            assert found == {}
        for n in {1, max(1, suite.size // 2), suite.size}:
            rarefied = coverage.rarefied(n).get(name)
            assert (rarefied and rarefied[0]) == close(expected.rarefied(plain, n)), (number, n)
        gains = coverage.gain(activations=further)[name]
        for place, gain in enumerate(gains.tolist()):
            wanted = expected.value(together(plain, only(candidates, place))) - value
            assert gain == close(wanted), (number, place)
    assert judged >= 15


@pytest.mark.parametrize("size", [50, 400])
def test_errors_are_how_far_suites_differ(size):
    # Drawn anew each time, so that the deviation between suites is the error itself. Ten folds that are unequal by
    # chance had told the value's error half as much again before their sizes counted.
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(6, 40, generator=generator)

    def drawn(count):
        hidden = torch.tanh(torch.randn(count, 6, generator=generator) @ mixed)
        return {"activations": {"hidden": hidden, "fc": hidden[:, :20] @ mixed[:, :20].T}}

    coverage = nc.Coverage.of_layers({"hidden": 40, "fc": 6}, [nc.LCC(over="mean")])
    coverage.calibrate(**drawn(3000), progress=False)
    found = []
    for _ in range(60):
        coverage.reset()
        coverage.update(**drawn(size))
        figures = coverage.details()["LCC(over=mean)"]
        found.append(
            [coverage.values()["LCC(over=mean)"], figures["relative"], figures["error"], figures["relative_error"]]
        )
    table = torch.tensor(found, dtype=torch.float64)
    told = table[:, 2:].square().mean(0).sqrt() / table[:, :2].std(0)
    assert ((told > 0.75) & (told < 1.25)).all(), told

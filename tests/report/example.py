"""A measurement of digits with every section of a report, for the tests of reports."""

import io
from dataclasses import replace

import numpy as np
import torch
from PIL import Image

import neuralcov as nc
from neuralcov import demo
from neuralcov.results.sections import (
    FewerInputs,
    Gallery,
    GalleryItem,
    GrowthCurve,
    LayerNeurons,
    Reference,
    SuiteMap,
)


def batches(split, size=100):
    samples = demo.digits(split)
    inputs = samples.inputs.float() / samples.levels
    return [(inputs[i : i + size], samples.labels[i : i + size]) for i in range(0, len(inputs), size)]


def measured(net, data=None):
    """A coverage of the digits by four criteria."""
    coverage = nc.Coverage(net, [nc.LCC(), nc.KMNC(100), nc.SNAC(), nc.NC(0.75)])
    coverage.calibrate(batches("train"), progress=False)
    coverage.assess(batches("test") if data is None else data, slices=["class"], progress=False)
    return coverage


def sectioned(net, coverage):
    """The content of a report in which every section is filled, from real values as far as there are."""
    content = coverage.report_content(model="DigitsNet", suite="digits test")
    result = content.result
    inputs, labels = (torch.cat(parts) for parts in zip(*batches("test"), strict=True))
    train = torch.cat([batch for batch, _ in batches("train")])
    outputs, predictions = _layer(net, inputs)
    learnt, _ = _layer(net, train)
    return replace(
        content,
        result=replace(
            result,
            growth={name: _growth(name, value, result.inputs) for name, value in result.values.items()},
            references={
                "KMNC(100)": Reference(0.9 * result.values["KMNC(100)"], result.inputs, (150, 597), (0.5, 0.7)),
                "LCC": Reference(
                    result.values["LCC"], result.inputs, (150, 300, 597), (0.2, 0.3, result.values["LCC"])
                ),
            },
            neurons=tuple(_neurons(row.layer, row.neurons) for row in result.layers),
            map=_map(learnt, outputs, labels, predictions),
            galleries=_galleries(inputs, labels, predictions),
            fewer=FewerInputs(
                "KMNC(100)", (40, 80, 160, 320, 597), (0.5, 0.7, 0.86, 0.96, 1.0), (0.3, 0.5, 0.6, 0.9, 1.0)
            ),
        ),
    )


def picture(pixels):
    """A PNG of values in [0, 1]."""
    out = io.BytesIO()
    Image.fromarray((255 * np.asarray(pixels)).astype(np.uint8)).save(out, "PNG")
    return out.getvalue()


def _layer(net, inputs):
    heard = []
    handle = net.fc1.register_forward_hook(lambda _module, _inputs, output: heard.append(output.detach()))
    with torch.no_grad():
        predictions = net(inputs).argmax(1)
    handle.remove()
    return heard[0], predictions


def _growth(name, value, inputs):
    sizes = (10, 19, 38, 75, 150, 299, inputs)
    values = tuple(value * (size / inputs) ** 0.2 for size in sizes)
    errors = tuple(0.03 * one for one in values) if name in ("LCC", "KMNC(100)") else None
    forecast = ((2 * inputs, 1.06 * value, 0.02 * value), (4 * inputs, 1.1 * value, 0.05 * value)) if errors else ()
    return GrowthCurve(sizes, values, errors, "rarefied" if errors else "as measured", forecast)


def _neurons(layer, neurons):
    rng = np.random.default_rng(neurons)
    shares = tuple(float(share) for share in np.sort(rng.beta(6, 2, min(neurons, 128))))
    numbers = tuple(int(number) for number in rng.permutation(neurons)[: len(shares)])
    falling = np.exp(-np.arange(10) / 3)
    return LayerNeurons(
        layer,
        neurons,
        {"KMNC(100)": shares},
        {"KMNC(100)": numbers},
        tuple(range(3, 9)) if layer == "fc1" else (),
        (),
        tuple(float(share) for share in 0.8 * falling / falling.sum()),
        6 if layer == "fc1" else 0,
        0,
        {"KMNC(100)": 0.9},
    )


def _map(learnt, outputs, labels, predictions):
    middle = learnt.mean(0)
    _, spread, directions = torch.linalg.svd(learnt - middle, full_matrices=False)
    shares = (spread**2 / (spread**2).sum()).tolist()
    points = [[tuple(row) for row in ((some - middle) @ directions[:2].T).tolist()] for some in (learnt, outputs)]
    return SuiteMap(
        "fc1",
        (shares[0], shares[1]),
        tuple(points[0][:2000]),
        tuple(points[1][:2000]),
        tuple(str(int(label)) for label in labels),
        tuple((labels != predictions).tolist()),
    )


def _galleries(inputs, labels, predictions):
    wrong = torch.nonzero(labels != predictions).flatten().tolist()[:12]
    first = list(range(16))
    return tuple(
        Gallery(
            title,
            explanation,
            tuple(
                GalleryItem(
                    f"test {row}", why, str(int(labels[row])), str(int(predictions[row])), picture(inputs[row, 0])
                )
                for row in rows
            ),
        )
        for title, explanation, why, rows in (
            ("Most surprising", "Farthest from training inputs of their class.", "DSC 1.20", [*wrong, *first][:16]),
            ("Near duplicates", "They show the same kind in every layer as another input.", "as test 3", first),
            ("Adding most", "They were first to show the most kinds.", "first to show 41 kinds", first),
            ("Adding nothing", "Nothing would change without them.", "adds nothing", first),
        )
    )

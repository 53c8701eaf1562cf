"""Make golden files with the code as it is: ``python -m tests.golden.make schema-1``.

Committed folders are never made again; run this once for a new schema, into a folder of its own.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

import neuralcov as nc
from tests.golden import subjects


def main(folder: Path) -> None:
    """Write states, a calibration, campaigns, and what they must give, into an empty folder."""
    folder.mkdir()
    drawn = {name: subjects.arrays(seed, size, spread) for name, seed, size, spread in DATA}
    np.savez_compressed(
        folder / "data.npz", **{f"{name}/{key}": array for name, part in drawn.items() for key, array in part.items()}
    )
    batches = {name: subjects.activations(part) for name, part in drawn.items()}
    settings = subjects.settings()
    together = nc.Coverage.of_layers(subjects.WIDTHS, list(settings.values()))
    together.calibrate(activations=batches["training"], held_out=batches["held_out"])
    together.save_calibration(folder / "training.ncal")
    expected = {"states": {name: state(folder, name, one, batches) for name, one in settings.items()}}
    expected["model"] = with_model(folder)
    for name, fuzzer in (("images", subjects.image_fuzzer), ("texts", subjects.text_fuzzer)):
        campaign = fuzzer(folder / name).run(iterations=40, progress=False)
        (folder / name / "lock").unlink(missing_ok=True)
        expected[name] = {"outputs": campaign.outputs, "faults": len(campaign.faults), "values": campaign.values}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


DATA = (("training", 1, 60, 1.0), ("held_out", 2, 20, 1.0), ("suite", 3, 24, 1.2), ("candidates", 4, 5, 1.4))


def state(folder, name, criterion, batches):
    """Save the state of one criterion, and return what it must give."""
    coverage = nc.Coverage.of_layers(subjects.WIDTHS, [criterion])
    if criterion.learns:
        coverage.calibrate(folder / "training.ncal")
    for rows in (slice(0, 10), slice(10, 24)):
        coverage.update(activations=batches["suite"].take(rows))
    coverage.save(folder / f"{name}.ncov")
    scores = coverage.scores(activations=batches["candidates"])
    found = {
        "name": criterion.name,
        "definition": criterion.definition,
        "value": coverage.values()[criterion.name],
        "by_layer": [row.values[criterion.name] for row in coverage.by_layer()],
        "gain": coverage.gain(activations=batches["candidates"])[criterion.name].tolist(),
        "scores": scores[criterion.name].tolist() if scores else None,
        "calibration": coverage.calibration_ids()[criterion.name],
    }
    coverage.update(activations=batches["candidates"])
    return {**found, "after": coverage.values()[criterion.name]}


def with_model(folder):
    """Save coverage of a model, and return what it must give before and after the other half of the pictures."""
    images = subjects.pictures().float() / 255
    coverage = nc.Coverage(subjects.Classifier(), [nc.NLC(), nc.NC(0.5), nc.TKNP(2)])
    coverage.update(images[:12])
    coverage.save(folder / "model.ncov")
    before = coverage.values()
    coverage.update(images[12:])
    return {"before": before, "after": coverage.values()}


if __name__ == "__main__":
    warnings.simplefilter("ignore", nc.CoverageWarning)
    main(Path(__file__).parent / sys.argv[1])

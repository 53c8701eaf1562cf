"""Every result of dnn-tip against ours, per input and for the suite."""

import numpy as np
import pytest

from tests.outside.fixtures import batch_of, coverage_of, criterion_of, entries, split_of

ENTRIES = entries("dnn_tip.json")


def scale_of(entry):
    """What our shares are to be multiplied with to count profile bits."""
    criterion = criterion_of(entry["neuralcov"])
    layers, _ = split_of(entry["network"], "train")
    neurons = sum(part.shape[1] for part in layers.values())
    return neurons * {"KMNC": getattr(criterion, "sections", 1), "NBC": 2}.get(type(criterion).__name__, 1)


def counts(found, entry, wanted):
    """Whether shares are so many bits; both are whole numbers."""
    ours = np.atleast_1d(found) * scale_of(entry)
    return bool(np.allclose(ours, np.atleast_1d(wanted) + entry.get("offset", 0), rtol=0, atol=1e-6))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['network']} {entry['function']}")
def test_entry(entry):
    coverage = coverage_of(entry["network"], entry["neuralcov"], "predictions")
    test = batch_of(entry["network"], "test", "predictions")
    scores = next(iter(coverage.scores(**test).values()), None)
    if "sections" in entry:
        coverage.update(**test)
        (value,) = coverage.values().values()
        assert value * entry["sections"] == pytest.approx(entry["suite"], abs=1e-9)
    elif scores is not None:
        wanted = np.array(entry["per_input"])
        np.testing.assert_allclose(scores.numpy(), wanted, rtol=entry["tolerance"], atol=entry["tolerance"])
    else:
        (gain,) = coverage.gain(**test).values()
        assert counts(gain.numpy(), entry, entry["per_input"])
        coverage.update(**test)
        (value,) = coverage.values().values()
        assert counts(value, entry, entry["suite"])


def test_none_is_missing_and_a_wrong_count_would_be_noticed():
    assert len(ENTRIES) == 51
    bits = [entry for entry in ENTRIES if "per_input" in entry and "tolerance" not in entry]
    assert len(bits) == 30
    for entry in bits:
        right = (np.array(entry["per_input"]) + entry.get("offset", 0)) / scale_of(entry)
        assert counts(right, entry, entry["per_input"])
        right[7] += 1 / scale_of(entry)
        assert not counts(right, entry, entry["per_input"])

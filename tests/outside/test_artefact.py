"""Every result of the paper's artefact that stands in a relation to ours, against ours."""

import collections

import numpy as np
import pytest
import torch

from tests.outside.fixtures import batch_of, coverage_of, entries, size_of

RELATED = [entry for entry in entries("artefact.json") if entry["expect"] not in ("differs", "fails")]


def name_of(entry):
    parts = [entry["network"], entry["neuralcov"], entry["start"], f"batch {entry['batch']}", entry.get("by", "")]
    return " ".join(part for part in (*parts, "variant" if "variant" in entry else "") if part)


def classes_of(entry):
    return entry["by"] if entry.get("by") in ("labels", "predictions") else None


def observe(coverage, entry, split, batch, dtype):
    """Give the value after every batch."""
    course = []
    for start in range(0, size_of(entry["network"], split), batch):
        rows = slice(start, start + batch)
        coverage.update(**batch_of(entry["network"], split, classes_of(entry), rows, dtype))
        course.append(next(iter(coverage.values().values())))
    return course


def holds(entry, ours, theirs):
    """Whether a number, or one per input, stands to the artefact's as the entry says."""
    if entry["expect"] == "at least":
        return ours >= theirs
    if entry["expect"] == "at most":
        return ours <= theirs
    ours, wanted = np.atleast_1d(ours).astype(float), np.atleast_1d(theirs) + entry.get("offset", 0)
    kept = ~np.isin(np.arange(len(wanted)), entry.get("except", []))
    scale = np.maximum(1, np.abs(wanted))
    # Numbers are given to twelve digits, surprises as multiples of 1e-9.
    return ours.shape == wanted.shape and bool((np.abs(ours - wanted) <= entry["tolerance"] * scale + 2e-9)[kept].all())


@pytest.mark.parametrize("entry", RELATED, ids=name_of)
def test_entry(entry):
    coverage = coverage_of(entry["network"], entry["neuralcov"], classes_of(entry))
    if entry["start"] == "train":
        course = observe(coverage, entry, "train", entry.get("train_batch", entry["batch"]), torch.float64)
        if "after_train_float64" in entry:
            assert holds(entry, course[-1], entry["after_train_float64"])
    test = batch_of(entry["network"], "test", classes_of(entry))
    if entry["criterion"].startswith("NLC gain"):
        assert holds(entry, coverage.gain(**test)["NLC"].numpy(), entry["values"])
    elif "values" in entry:
        (scores,) = coverage.scores(**test).values()
        assert holds(entry, scores.numpy(), entry["values"])
    else:
        course = observe(coverage, entry, "test", entry["batch"], torch.float64)
        assert holds(entry, course[-1], entry["value_float64"])
        if "course_float64" in entry:
            assert holds(entry, course, entry["course_float64"])


COUNTS = ("NC", "KMNC", "NBC", "SNAC", "TKNC", "TKNP", "CC")


@pytest.mark.parametrize(
    "entry", [entry for entry in RELATED if entry["criterion"] in COUNTS and entry["start"] == "fresh"], ids=name_of
)
def test_counts_are_the_same_in_float32(entry):
    coverage = coverage_of(entry["network"], entry["neuralcov"], dtype=torch.float32)
    course = observe(coverage, entry, "test", entry["batch"], torch.float32)
    assert holds(entry, course[-1], entry["value_float64"])


def test_none_is_missing():
    assert len(entries("artefact.json")) == 249
    assert len(RELATED) == 189
    assert collections.Counter(entry["expect"] for entry in RELATED) == {
        "equal": 122, "offset": 45, "at most": 12, "at least": 6, "except": 4,
    }  # fmt: skip


@pytest.mark.parametrize("relation", ["equal", "offset", "except"])
def test_a_wrong_number_would_be_noticed(relation):
    """Off by a hundred thousandth, in one input of a hundred if there is one per input, no entry holds."""
    for entry in (entry for entry in RELATED if entry["expect"] == relation):
        theirs = np.atleast_1d(entry.get("values", entry.get("value_float64"))).astype(float)
        ours = theirs + entry.get("offset", 0)
        assert holds(entry, ours, theirs)
        place = next(row for row in range(len(ours)) if row not in entry.get("except", []))
        ours[place] += 1e-5 * max(1, abs(ours[place]))
        assert not holds(entry, ours, theirs)

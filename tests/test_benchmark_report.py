"""Tables of benchmarks: runs of one kind of machine are put together, targets met and missed are told."""

import pytest
from benchmarks import report

GPU = {"machine": {"device": "NVIDIA H200", "torch": "2.11.0"}, "full": True, "label": ""}


def compared(auto, plain):
    rules = {"auto": {"ratio": auto, "seconds": [1.0], "steady ratio": auto - 0.1, "explain": "recorded"}}
    return {
        "forward seconds of a batch": 0.004,
        "forward recorded, seconds of a batch": 0.003,
        "criteria": {"NLC": {**rules, "False": {"ratio": plain, "seconds": [2.0], "steady ratio": plain}}},
    }


def assessed(size, ratio):
    figures = {"seconds": 0.5, "ratio": ratio, "peak bytes": 1 << 30}
    return {"inputs": 10_000, "size": size, "forward seconds": 0.25, "criteria": {"NLC": figures}}


def grown(seconds):
    return {"NLC": {str(10**power): {"seconds per 1,000": value} for power, value in enumerate(seconds, 2)}}


@pytest.fixture
def runs():
    return [
        {**GPU, "small": {"batches": 100, "sizes": {"32": compared(1.4, 3.0), "100": compared(1.6, 2.5)}}},
        {**GPU, "assess": assessed(1_000, 1.2), "growth": {"width": grown([1.0, 2.0, 200.0])}},
        {**GPU, "assess": assessed(100, 3.0), "growth": {"layers": grown([1.0, 10.0]), "wall seconds": 3.0}},
        {**GPU, "naive": {"forms": {"NLC": {"seconds per 10,000": 5.0}}}},
    ]


def test_runs_of_one_machine_are_put_together(runs):
    found = report.joined(runs)
    assert [found[part]["size"] for part in ("assess", "assess 100")] == [1_000, 100]
    assert set(found["growth"]) == {"width", "layers", "wall seconds"}


def test_targets_met_and_missed_stand_beside_an_earlier_version(runs):
    before = {**GPU, "label": "before", "small": {"sizes": {"32": compared(9.0, 4.5)}}}
    text = report.tables("gpu", [*runs, before])["small"]
    assert "**Batches of 32**: plain forward pass 4 ms a batch, 3 ms as a CUDA graph of its own." in text
    assert "| criterion | × forward | target | once recorded | plain calls | before |" in text
    assert "| NLC | 1.40 | ≤ 1.5 ✓ | 1.30 | 3.00 | 4.50 |" in text
    assert "| NLC | 1.60 | ≤ 1.5 ✗ | 1.50 | 2.50 |" in text


def test_all_criteria_stand_beside_smaller_batches_and_naive_forms(runs):
    text = report.tables("gpu", runs)["assess"]
    assert "| NLC | 0.5 | 1.20 | ≤ 1.25 ✓ | 1.07 GB | 3.00 | 5 | 10 |" in text
    assert not report.tables("cpu", runs)


def test_growth_shows_the_power_beside_what_the_definition_says(runs):
    text = report.tables("gpu", runs)["growth"]
    assert "| width | NLC | 100 → 10,000 | 1 → 200 | 2.0 | 2 |" in text
    assert "| layers | NLC | 100 → 1,000 | 1 → 10 | 1.0 | 1 |" in text


def test_tables_are_put_between_their_markers():
    text = "a\n<!-- begin gpu small -->\nold\n<!-- end gpu small -->\nb\n"
    expected = "a\n<!-- begin gpu small -->\nnew\n<!-- end gpu small -->\nb\n"
    assert report.filled(text, "gpu small", "new") == expected
    with pytest.raises(ValueError, match="gpu half"):
        report.filled(text, "gpu half", "new")

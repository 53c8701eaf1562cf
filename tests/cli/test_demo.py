import sys

import torch

import neuralcov as nc
from neuralcov import zoo
from neuralcov.cli.demo import demo_criteria, demo_suites, ranks_rightly


def test_suites_are_what_they_are_called():
    test = zoo.digits("test")
    suites = demo_suites(test)
    assert suites["test"] is test
    assert len(suites["a tenth"]) == len(test) // 10
    assert suites["one class"].labels.unique().tolist() == [3]
    noisy = suites["noisy copies"]
    assert len(noisy) == len(test)
    assert len(noisy.inputs.flatten(1).unique(dim=0)) == len(test)
    originals = test.pixels()
    nearest = torch.cdist(noisy.pixels().flatten(1), originals.flatten(1), p=float("inf")).min(1)
    assert nearest.values.max() <= 0.1 + 1e-6
    assert len(nearest.indices.unique()) == 10


def test_ranking():
    assert ranks_rightly({"test": 2.0, "a tenth": 1.0})
    assert not ranks_rightly({"test": 2.0, "a tenth": 2.0})


def test_what_lacks_a_package_is_left_out(monkeypatch):
    everything, none = demo_criteria()
    assert none == []
    monkeypatch.setattr(sys.modules["neuralcov.cli.demo"], "relevance_installed", lambda: False)
    criteria, left_out = demo_criteria()
    assert left_out == ["NPC(0.7)"]
    assert [c.name for c in criteria] == [c.name for c in everything if not isinstance(c, nc.NPC)]

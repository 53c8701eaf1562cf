"""Sentence embeddings: texts that a classifier of them misreads, ranked by the encoder's states alone."""

import json

import numpy as np
import pytest
import torch
from scipy import stats

from neuralcov_lab import zoo
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.scales import FULL, SMOKE
from neuralcov_lab.experiments.selecting import reading
from neuralcov_lab.experiments.selecting import sentences as module
from neuralcov_lab.experiments.selecting import strangers as strangers_module
from neuralcov_lab.experiments.selecting.page import select_page
from neuralcov_lab.experiments.selecting.plan import plan, select
from neuralcov_lab.experiments.selecting.sentences import by_states, fitted, in_pieces, sentences
from neuralcov_lab.experiments.toys import toy_reviews
from neuralcov_lab.networks.sentence_encoder import SentenceEncoder


def test_orders_by_states_are_the_librarys_own():
    random = np.random.default_rng(0)
    columns = {name: random.random(40) for name in ("lsc", "mdsc", "rarity")}
    rows = np.arange(0, 40, 2)
    ranks = stats.rankdata(-columns["mdsc"][rows]) + stats.rankdata(-columns["rarity"][rows])
    assert by_states(columns, rows).tolist() == rows[np.argsort(ranks, kind="stable")].tolist()
    wrong = columns["lsc"] > 0.5
    places = np.arange(0, 12)
    left = by_states(columns, rows, wrong, places)
    assert sorted(left.tolist()) == rows[12:].tolist()


def test_the_classifier_is_the_logistic_regression():
    random = torch.Generator().manual_seed(0)
    given = torch.randn(200, 3, generator=random, dtype=torch.float64)
    for labels in ((given[:, 0] > 0).long(), given.argmax(1)):
        head = fitted(given, labels)
        assert head(given).argmax(1).eq(labels).double().mean() > 0.9
        assert len(head.weight) == len(labels.unique())


@pytest.fixture
def done(tmp_path, monkeypatch):
    """A job on a toy, so that there is a page."""
    monkeypatch.setenv("NEURALCOV_DATA", str(tmp_path))
    result = select(ExperimentContext(SMOKE), "mlp-toy", None, 2, 1, 50)
    return JobResult(
        "select.mlp-toy", {"parameters": {"subject": "mlp-toy"}, "experiments": ["select"], "result": result}
    )


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Put a small encoder with random weights, and texts made up, in the place of what is fetched."""
    torch.manual_seed(0)
    words = toy_reviews(4, 1).words
    pieces = [["", 0]] * 6 + [["\u2581" + word, -1 / len(word)] for word in words]
    (tmp_path / "vocab.json").write_text(json.dumps(pieces))
    monkeypatch.setattr(module, "require", lambda name: tmp_path)
    network = SentenceEncoder(pieces=len(pieces), width=8, wide=16, heads=2)
    monkeypatch.setattr(zoo, "sentence_encoder", lambda: network)
    monkeypatch.setattr(zoo, "data", lambda name, split: toy_reviews(240, 1 if split == "train" else 2))
    return pieces


def test_texts_become_pieces(small):
    samples = toy_reviews(5, 1)
    found = in_pieces(samples, module.Pieces(map(tuple, small)))
    assert found.lengths.tolist() == (found.inputs != 0).sum(1).clamp(min=1).tolist()
    first = [samples.words[number] for number in samples.inputs[0].tolist() if number > 1]
    assert [small[token - 1][0][1:] for token in found.inputs[0].tolist() if token] == first


def test_a_whole_run_fills_its_part_of_the_page(small):
    found = sentences(ExperimentContext(SMOKE), "toy", pools=2, labels=20)
    assert list(found["sentences"]) == ["nominal", "shifted", "shifted more"]
    own = found["sentences"]["shifted more"]
    assert set(own["orders"]) == {"random", "DeepGini", "hidden states alone", "MDSA", "LSA", "LCC rarity"}
    assert set(own["after Clotho's labels"]) == {
        "DeepGini",
        "hidden states alone",
        "learnt from labels",
        "Clotho's idea",
    }
    result = JobResult("select.sentences-toy", {"parameters": {"data": "toy"}, "result": found})
    page = select_page([result], [])
    assert "sentences-toy, nominal" in page


def test_both_data_sets_are_planned_at_full_scale():
    names = {job.name for job in plan(FULL)}
    assert {"select.sentences-newsgroups", "select.sentences-imdb"} <= names
    assert not any("sentences" in job.name for job in plan(SMOKE))


def test_features_tell_the_texts_of_a_subject_apart(small, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "require", lambda name: tmp_path)
    monkeypatch.setattr(reading, "cache_folder", lambda: tmp_path / "cache")
    context = ExperimentContext(SMOKE)
    found = reading.read_features(context, "transformer-toy")
    assert {name: own.shape for name, own in found.items()} == dict.fromkeys(
        ("nominal", "shifted", "shifted more"), (500, 16)
    )
    assert found["nominal"].std(0)[0] > found["nominal"].std(0)[-1] > 0
    monkeypatch.setattr(zoo, "sentence_encoder", lambda: pytest.fail("it was read before"))
    assert (reading.read_features(context, "transformer-toy")["shifted"] == found["shifted"]).all()


def test_strange_texts_are_counted_among_the_first(done, small, tmp_path, monkeypatch):
    monkeypatch.setattr(strangers_module, "require", lambda name: tmp_path)
    found = strangers_module.strangers(ExperimentContext(SMOKE), known=100, usual=30, strange=10)
    assert set(found["strangers"]) == {"film reviews", "words replaced"}
    counts = found["strangers"]["film reviews"]
    assert counts["50"] == counts["200"] == 10
    content = {"parameters": {}, "experiments": ["select"], "result": found}
    assert "| film reviews | 10 | 10 | 10 |" in select_page([done, JobResult("select.strangers", content)], [])
    assert "select.strangers" in {job.name for job in plan(FULL)}

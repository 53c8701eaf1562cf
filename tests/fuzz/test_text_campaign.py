"""A campaign over texts: a model that tells good from bad by its words, and mutations of words."""

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.fuzz import WordRule, text_mutations
from neuralcov.fuzz.campaign.reader import open_campaign
from neuralcov.fuzz.search.candidates import follow

WORDS = ["<pad>", "<unk>", "good", "bad", "god", "bat", "a", "film", "very", "not", "food", "dad", "lm"]
GOOD, BAD = WORDS.index("good"), WORDS.index("bad")


class Sentiment(nn.Module):
    """Class 1 if there are more good words than bad ones."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(len(WORDS), 6)
        self.fc = nn.Linear(6, 5)

    def forward(self, tokens):
        self.fc(self.embedding(tokens.long()).mean(1))
        score = (tokens == GOOD).sum(1).float() - (tokens == BAD).sum(1) - 0.5
        return torch.stack([-score, score], 1)


def texts():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(2, len(WORDS), (24, 14), generator=generator)
    lengths = torch.randint(6, 15, (24,), generator=generator)
    return torch.where(torch.arange(14) < lengths[:, None], rows, 0)


def fuzzer(folder):
    model = Sentiment()
    coverage = nc.Coverage(model, [nc.NLC()])
    mutations = text_mutations(WORDS, model.embedding.weight)
    return nc.Fuzzer(
        coverage,
        texts(),
        mutations=mutations,
        words=WORDS,
        wave=8,
        folder=folder,
        alpha=0.4,
        tries=10,
        guide="coverage",
        mutation_choice="uniform",
    )


def test_a_campaign_over_texts(tmp_path):
    searching = fuzzer(tmp_path / "c")
    found = searching.run(iterations=80)
    assert [mutation.name for mutation in searching.mutations] == [
        "swap", "drop", "duplicate", "shuffle", "typo", "nearby word"
    ]  # fmt: skip
    assert found.faults
    corpus = searching.search.state.corpus
    kept = range(corpus.roots, len(corpus))
    roots = corpus.inputs(corpus.entries["root"][corpus.roots :])
    rebuilt, references = follow(
        roots, [corpus.steps(row) for row in kept], searching.mutations, searching.input_format
    )
    assert torch.equal(rebuilt, found.inputs)
    assert torch.equal(references, roots)
    assert WordRule(0.4)(found.inputs, roots).all()
    for fault in found.faults:
        said = (tmp_path / "c" / "faults" / f"{fault.stem}.txt").read_text().split()
        assert said == [WORDS[token] for token in fault.input.tolist() if token]
        assert (said.count("good") > said.count("bad")) == bool(fault.after) != bool(fault.before)
    assert all(entry.reproduced and entry.rebuilt for entry in searching.replay(found.faults))
    archive = open_campaign(tmp_path / "c")
    assert archive.export("seeds", tmp_path) == 24
    assert any("typo" in words for fault in archive.faults for words in fault.to_json(archive.mutations)["mutations"])


def test_it_resumes(tmp_path):
    fuzzer(tmp_path / "whole").run(iterations=60)
    fuzzer(tmp_path / "parts").run(iterations=60)
    log = (tmp_path / "parts" / "queue.log").read_bytes()
    (tmp_path / "parts" / "queue.log").write_bytes(log[: len(log) // 2])
    for path in (tmp_path / "parts" / "coverage").iterdir():
        path.unlink()
    fuzzer(tmp_path / "start").run(iterations=0)
    first = next((tmp_path / "start" / "coverage").iterdir())
    (tmp_path / "parts" / "coverage" / first.name).write_bytes(first.read_bytes())
    with pytest.warns(nc.CoverageWarning, match="were no whole wave"):
        again = fuzzer(tmp_path / "parts").resume(iterations=60)
    assert again.exact
    whole = fuzzer(tmp_path / "whole").resume(iterations=60)
    assert torch.equal(again.inputs, whole.inputs)
    assert again.values == whole.values

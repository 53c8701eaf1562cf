"""Prompts of a causal language model, from a small configuration, ranked by hidden states before anything is said."""

import pytest
import torch

import neuralcov as nc

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning", "ignore::UserWarning")
STRANGE = 8


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=16, vocab_size=40)
    return transformers.GPT2LMHeadModel(config).eval()


def prompts(count, low, high, seed):
    """Return prompts of words from a part of the vocabulary, of several lengths, padded behind."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(low, high, (count, 9), generator=random)
    lengths = torch.randint(4, 10, (count,), generator=random)
    mask = (torch.arange(9) < lengths[:, None]).long()
    return {"input_ids": tokens * mask, "attention_mask": mask}


@pytest.fixture(scope="module")
def pool():
    """Return prompts to rank: the last few in words that the reference set lacks."""
    usual, strange = prompts(40, 3, 20, 2), prompts(STRANGE, 20, 40, 3)
    return [usual, strange]


@pytest.mark.parametrize("layers", ["residual", "transformer.h.1"])
def test_strange_prompts_stand_first(model, pool, layers):
    coverage = nc.Coverage(model, [nc.MDSC(by=None), nc.LCC()], layers=layers, pool="last")
    coverage.calibrate([prompts(400, 3, 20, 1)])
    queue = nc.rank(coverage, pool)
    assert len(queue) == 48
    assert sum(place >= 40 for place in queue.positions[:STRANGE]) >= 6
    assert "training data" in queue[0].why
    assert nc.select(coverage, pool, 5).positions[0] == queue.positions[0]


def test_what_was_judged_teaches(model, pool):
    """Labels say which prompts failed: 1, and 0 for those that passed."""
    coverage = nc.Coverage(model, [nc.MDSC(by=None), nc.LSC(by=None), nc.LCC()], layers="residual", pool="last")
    coverage.calibrate([prompts(400, 3, 20, 1)])
    labels = {place: int(place >= 40) for place in [*range(0, 40, 2), 40, 41]}
    queue = nc.rank(coverage, pool, labels=labels)
    assert set(queue.positions) == set(range(48)) - set(labels)
    assert sum(place >= 40 for place in queue.positions[:6]) >= 5
    assert 0 <= queue[0].score <= 1


class Embedding(torch.nn.Module):
    """Give numbers for each input that look like scores of classes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = torch.nn.Linear(6, 12), torch.nn.Linear(12, 8)

    def forward(self, rows):
        return torch.nn.functional.normalize(self.outer(self.inner(rows).relu()), dim=1)


def rows(count, scale, seed):
    return scale * torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("calibrated", [False, True])
def test_embeddings_are_ranked_by_hidden_states(tmp_path, calibrated):
    """Their form is that of scores of classes, so that somebody has to say so."""
    coverage = nc.Coverage(Embedding().eval(), [nc.MDSC(by=None), nc.LSC(by=None), nc.LCC()])
    reference, pool = [rows(400, 1, 1)], [rows(40, 1, 2), rows(STRANGE, 5, 3)]
    given = {} if calibrated else {"training": reference}
    if calibrated:
        coverage.calibrate(reference)
    queue = nc.rank(coverage, pool, states=True, work=tmp_path / "w", **given)
    assert sum(place >= 40 for place in queue.positions[:STRANGE]) >= 6
    assert "training data" in queue[0].why
    assert "boundary" not in " ".join(row.why for row in queue)
    assert nc.rank(coverage, pool, states=True, work=tmp_path / "w", **given).positions == queue.positions
    assert nc.select(coverage, pool, 5, states=True, **given).positions[0] == queue.positions[0]
    judged = {place: int(place >= 40) for place in [*range(0, 40, 2), 40, 41]}
    learnt = nc.rank(coverage, pool, states=True, labels=judged, **given)
    assert set(learnt.weights) == {"lsc", "mdsc", "rarity"}
    assert sum(place >= 40 for place in learnt.positions[:6]) >= 5


def test_decisions_have_no_part_in_what_states_tell():
    """The same states under other decisions are ranked the same."""
    reference, pool = [rows(300, 1, 1)], [rows(50, 1, 2)]
    models = [Embedding().eval(), Embedding().eval()]
    with torch.no_grad():
        models[1].outer.weight.copy_(models[0].outer.weight.flip(0))
        models[1].outer.bias.copy_(models[0].outer.bias.flip(0))
    found = []
    for model in models:
        coverage = nc.Coverage(model, [nc.MDSC(by=None), nc.LCC()], layers=["inner"])
        found.append(list(nc.rank(coverage, pool, states=True, training=reference).positions))
    assert found[0] == found[1]

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

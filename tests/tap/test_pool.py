"""What is made of an input's tokens, beside NumPy on what a plain hook sees."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.tap import Batch, Tap

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
TOKENS = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor(
    [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 1, 0, 1, 0]]
)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x, attention_mask=None):
        return self.head(torch.relu_(self.fc(x)).mean(1))


def expected(values, mask, pool):
    rows = []
    for row, kept in zip(values, mask.bool().numpy(), strict=True):
        tokens = row[kept]
        rows.append({"mean": tokens.mean(0), "last": tokens[-1], "max": tokens.max(0)}[pool])
    return np.stack(rows)


@pytest.mark.parametrize("pool", ["mean", "last", "max"])
@pytest.mark.parametrize("masked", [True, False])
def test_tokens_are_pooled(pool, masked):
    model = Tokens().eval()
    given = {"x": TOKENS, **({"attention_mask": MASK} if masked else {})}
    found = Tap(model, pool=pool).run(Batch(given))[0].layers
    with torch.no_grad():
        values = model.fc(TOKENS).double().numpy()
    mask = MASK if masked else torch.ones_like(MASK)
    assert np.allclose(found["fc"].numpy(), expected(values, mask, pool), atol=1e-6)
    # A layer without tokens is as it is.
    with torch.no_grad():
        assert torch.equal(found["head"], model(TOKENS))


@pytest.mark.parametrize("pool", ["last", "max"])
def test_nan_in_a_masked_token_does_not_leak(pool):
    given = TOKENS.clone()
    given[1, 3] = torch.nan
    found = Tap(Tokens().eval(), "fc", pool=pool).run(Batch({"x": given, "attention_mask": MASK}))[0].layers["fc"]
    assert bool(found.isfinite().all())
    given[1, 1] = torch.nan
    found = Tap(Tokens().eval(), "fc", pool=pool).run(Batch({"x": given, "attention_mask": MASK}))[0].layers["fc"]
    assert found.isfinite().all(1).tolist() == [True, False, True, True, True, True]


def test_images_are_averaged_whatever_it_says():
    conv, images = nn.Conv2d(1, 3, 3).eval(), torch.randn(4, 1, 6, 6)
    found = Tap(conv, pool="max").run(Batch(images))[0].layers["Conv2d"]
    with torch.no_grad():
        assert torch.allclose(found, conv(images).mean((2, 3)), atol=1e-6)


def test_states_of_another_pool_do_not_go_together(tmp_path):
    model = Tokens().eval()
    last, mean = (nc.Coverage(model, [nc.NLC(rule="all")], pool=pool) for pool in ("last", "mean"))
    for coverage in (last, mean):
        coverage.update(TOKENS)
    assert last.values() != mean.values()
    for one, other in ((last, mean), (mean, last)):
        with pytest.raises(nc.NeuralcovError, match="tokens are pooled otherwise"):
            one.merge(other, overlap="repeat")
    last.save(tmp_path / "last.ncov")
    mean.save(tmp_path / "mean.ncov")
    again = nc.Coverage.load(tmp_path / "last.ncov", model)
    again.update(TOKENS + 1)
    last.update(TOKENS + 1)
    assert again.values() == last.values()
    with pytest.raises(nc.NeuralcovError, match="tokens are pooled otherwise: pool='mean' here, pool='last'"):
        mean.load_state(tmp_path / "last.ncov")
    with pytest.raises(nc.NeuralcovError, match="tokens are pooled otherwise"):
        nc.Coverage.load(tmp_path / "mean.ncov", model, pool="max")


def test_what_it_cannot_be():
    with pytest.raises(nc.NeuralcovError, match="pool='sum': expected one of 'mean', 'last', 'max'"):
        nc.Coverage(Tokens(), [nc.NC()], pool="sum")
    npc = nc.Coverage(Tokens().eval(), [nc.NPC()], pool="max")
    with pytest.raises(nc.NeuralcovError, match="relevance goes with pool='mean'"):
        npc.calibrate([(TOKENS, torch.zeros(6, dtype=torch.long))])


def test_a_calibration_of_another_pool_is_refused(tmp_path):
    model = Tokens().eval()
    for theirs in ("mean", "last", "tokens"):
        learnt = nc.Coverage(model, [nc.KMNC(10)], pool=theirs)
        learnt.calibrate([TOKENS])
        learnt.save_calibration(tmp_path / f"{theirs}.ncal")
        for ours in ("mean", "last", "tokens"):
            coverage = nc.Coverage(model, [nc.KMNC(10)], pool=ours)
            if ours == theirs:
                coverage.calibrate(tmp_path / f"{theirs}.ncal")
                coverage.update(TOKENS)
                assert coverage.values()["KMNC(10)"] > 0
                continue
            with pytest.raises(nc.NeuralcovError, match=f"pool='{ours}' here, pool='{theirs}' in .*{theirs}.ncal"):
                coverage.calibrate(tmp_path / f"{theirs}.ncal")

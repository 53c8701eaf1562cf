"""Experts that pick tokens by content: left out, measured as rows say, absent where nothing was routed."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.tap import Batch, Tap


class Experts(nn.Module):
    """Every input goes to one expert, by its content."""

    def __init__(self, experts=4):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Linear(5, 6)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)) for _ in range(experts))

    def forward(self, x):
        hidden = self.stem(x)
        self.route = torch.bucketize(x[:, 0].contiguous(), torch.tensor([-0.7, 0.0, 0.7])[: len(self.experts) - 1])
        output = x.new_zeros(len(x), 3)
        for number, expert in enumerate(self.experts):
            chosen = self.route == number
            if chosen.any():
                output[chosen] = expert(hidden[chosen])
        return output


def test_experts_are_left_out_or_measured_as_rows_say():
    inputs = torch.randn(20, 5, generator=torch.Generator().manual_seed(3))
    model = Experts()
    coverage = nc.Coverage(model, [nc.NLC(rule="all")])
    with pytest.warns(nc.CoverageWarning) as caught:
        coverage.assess(inputs.split(10), progress=False)
    left_out, unmeasured = (str(warned.message) for warned in caught)
    assert "8 layers were left out" in left_out
    assert "of the model's parameters" in unmeasured
    assert list(coverage.layout) == ["stem"]
    assert any("experts.0.0" in finding.sentence for finding in coverage.findings())

    def rows(layer, output):
        if not layer.startswith("experts."):
            return None
        return (model.route == int(layer.split(".")[1])).nonzero()[:, 0]

    told = nc.Coverage(model, [nc.NLC(rule="all"), nc.KMNC(10)], rows=rows)
    told.calibrate([inputs], progress=False)
    told.assess(inputs.split(10), progress=False)
    alone = nc.Coverage(model, [nc.NLC(rule="all"), nc.KMNC(10)])
    alone.calibrate(inputs.split(1), progress=False)
    alone.assess(inputs.split(1), progress=False)
    assert told.values() == pytest.approx(alone.values(), rel=1e-5)
    assert sorted(told.layout) == sorted(alone.layout)
    batch, _ = told.run(inputs)
    model(inputs)
    for number in range(4):
        mine = model.route == number
        assert torch.equal(batch.present[f"experts.{number}.2"], mine)
        assert not batch.layers[f"experts.{number}.2"][~mine].any()
        expected = model.experts[number](model.stem(inputs[mine]))
        torch.testing.assert_close(batch.layers[f"experts.{number}.2"][mine], expected, rtol=1e-5, atol=1e-6)


def test_tokens_routed_to_experts_are_averaged_per_input():
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(2))

        def forward(self, x):
            flat = x.reshape(-1, 5)
            self.route = (flat[:, 0] > 0).long()
            self.tokens = x.shape[1]
            output = flat.new_zeros(len(flat), 3)
            for number, expert in enumerate(self.experts):
                output[self.route == number] = expert(flat[self.route == number])
            return output.reshape(*x.shape[:2], 3).mean(1)

    model, inputs = Routed(), torch.randn(9, 4, 5)

    def rows(layer, output):
        tokens = (model.route == int(layer[-1])).nonzero()[:, 0]
        return tokens // model.tokens

    batch, _ = Tap(model, rows=rows).run(Batch(inputs))
    for number in range(2):
        for index, tokens in enumerate(inputs):
            mine = tokens[(tokens[:, 0] > 0) == bool(number)]
            assert bool(batch.present[f"experts.{number}"][index]) == (len(mine) > 0)
            expected = model.experts[number](mine).mean(0) if len(mine) else torch.zeros(3)
            torch.testing.assert_close(batch.layers[f"experts.{number}"][index], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_experts_with_as_many_tokens_of_each_input_by_chance(seed):
    """Two tokens of each of the first three inputs go to each expert, and two on average of the others."""

    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts, self.head = nn.ModuleList(nn.Linear(5, 3) for _ in range(2)), nn.Linear(5, 2)

        def forward(self, x):
            flat = x.reshape(-1, 5)
            for number, expert in enumerate(self.experts):
                expert(flat[(flat[:, 0] > 0) == bool(number)])
            return self.head(x.mean(1))

    inputs = torch.randn(12, 4, 5, generator=torch.Generator().manual_seed(seed))
    positive = torch.tensor([2, 2, 2, 1, 3, 0, 4, 2, 2, 3, 1, 2])
    inputs[:, :, 0] = inputs[:, :, 0].abs() * torch.where(torch.arange(4) < positive[:, None], 1, -1)
    with pytest.warns(nc.CoverageWarning, match="2 layers were left out"):
        batch, _ = Tap(Routed()).run(Batch(inputs))
    assert list(batch.layers) == ["head"]


def test_experts_that_all_inputs_go_through_are_measured():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(3))

        def forward(self, x):
            return sum(expert(x) for expert in self.experts)

    model, inputs = Mixture(), torch.randn(9, 5)
    batch, _ = Tap(model).run(Batch(inputs))
    torch.testing.assert_close(batch.layers["experts.1"], model.experts[1](inputs))


def test_layers_that_do_not_fire_are_absent_for_their_inputs():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.positive, self.negative = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            hidden = self.first(x)
            return self.positive(hidden) if x.mean() > 0 else self.negative(hidden)

    model, inputs = Branches(), torch.randn(4, 3).abs()
    coverage = nc.Coverage(model, [nc.NLC(rule="all")])
    with pytest.raises(
        nc.NeuralcovError, match=r"layer 'negative' did not run in any forward pass.*layers='!negative'"
    ):
        coverage.update(inputs)
    assert coverage.inputs == 0
    with pytest.raises(nc.NeuralcovError, match="layer 'negative' did not run"):
        coverage.assess([inputs], progress=False)
    with pytest.raises(nc.NeuralcovError, match="layer 'negative' did not run"), coverage.tap():
        coverage.update(inputs)
    coverage.reset()
    coverage.assess([inputs, -inputs, 2 * inputs], progress=False)
    assert list(coverage.layout) == ["first", "positive", "negative"]
    outputs = {
        "first": model.first(torch.cat([inputs, -inputs, 2 * inputs])),
        "positive": model.positive(model.first(torch.cat([inputs, 2 * inputs]))),
        "negative": model.negative(model.first(-inputs)),
    }
    expected = sum(
        np.abs(np.cov(o.detach().double().numpy(), rowvar=False, bias=True)).sum() / o.shape[1] ** 2
        for o in outputs.values()
    )
    assert coverage.values()["NLC(rule=all)"] == pytest.approx(expected, rel=1e-5)
    coverage.update(inputs)  # all have fired by now
    batch, _ = coverage.run(-inputs)
    assert not batch.present["positive"].any()
    assert not batch.layers["positive"].any()


def test_experts_of_transformers_that_are_modules():
    """Switch Transformers route tokens by content; each input alone shows which rows are its own."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.SwitchTransformersConfig(
        vocab_size=40, d_model=8, d_kv=4, d_ff=12, num_layers=2, num_sparse_encoder_layers=2, num_heads=2, num_experts=3
    )
    model = transformers.SwitchTransformersEncoderModel(config).eval()
    ids = torch.randint(1, 40, (10, 6))
    together, _ = _in_one_block(Tap(model), [{"input_ids": ids}])[0]
    alone = _in_one_block(Tap(model), [{"input_ids": row} for row in ids.split(1)])
    experts = [layer for layer in together.layers if "expert_" in layer]
    assert len(experts) == 2 * 3 * 2
    for layer, outputs in together.layers.items():
        for index, (one, _) in enumerate(alone):
            present = bool(together.present[layer][index]) if layer in together.present else True
            assert present == (bool(one.present[layer][0]) if layer in one.present else True)
            torch.testing.assert_close(outputs[index], one.layers[layer][0], rtol=1e-4, atol=1e-5)
    masked = torch.ones(10, 6, dtype=torch.long)
    masked[:, 3:] = 0
    padded, _ = _in_one_block(Tap(model), [{"input_ids": ids, "attention_mask": masked}])[0]
    short, _ = _in_one_block(Tap(model), [{"input_ids": ids[:, :3]}])[0]
    for layer in experts:
        assert torch.equal(padded.present[layer], short.present[layer])
        torch.testing.assert_close(padded.layers[layer], short.layers[layer], rtol=1e-4, atol=1e-5)


def _in_one_block(tap, inputs):
    with tap.open():
        return [tap.run(Batch(part)) for part in inputs]

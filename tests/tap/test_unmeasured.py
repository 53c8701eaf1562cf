"""The share of parameters that belong to no measured layer, against sums done by hand."""

import json
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import neuralcov as nc
from neuralcov.tap import Tap


class Functional(nn.Module):
    """Computes with a bare parameter between two layers: 4·6 + 6, then 6·6, then 6·2 + 2."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
        self.middle = nn.Parameter(torch.randn(6, 6))

    def forward(self, x):
        return self.last(functional.linear(torch.relu(self.first(x)), self.middle))


def shares(model, layers=None):
    found = Tap(model, layers).unmeasured()
    return found.share, found.unseen, dict(found.largest)


def test_a_parameter_used_by_a_function():
    assert shares(Functional()) == (36 / 80, 36 / 80, {"middle": 36})
    coverage = nc.Coverage(Functional(), [nc.NC(0.5)])
    assert coverage.findings() == ()
    coverage.update(torch.eye(4))
    with pytest.warns(nc.CoverageWarning, match=r"layers: 45 % of the model's parameters, .* middle \(36\)"):
        coverage.values()
    with warnings.catch_warnings():
        warnings.simplefilter("error", nc.CoverageWarning)
        coverage.values()  # said once
    assert [finding.criterion for finding in coverage.findings()] == ["layers"]


def test_it_is_part_of_results():
    coverage = nc.Coverage(Functional(), [nc.NC(0.5)])
    coverage.update(torch.eye(4))
    with pytest.warns(nc.CoverageWarning):
        found = coverage.results(model="m", suite="s", inputs=4)
    written = json.loads(json.dumps(found.to_json()))
    assert written["unmeasured"] == {"share": 36 / 80, "unseen": 36 / 80, "largest": {"middle": 36}}
    assert "45 %" in written["findings"][0]
    bare = nc.Coverage.of_layers({"a": 4}, [nc.NC(0.5)])
    bare.update(activations={"a": torch.eye(4)})
    assert bare.unmeasured() is None
    assert bare.results(model="m", suite="s", inputs=4).to_json()["unmeasured"] is None


def test_the_largest_come_first_and_are_few():
    net = nn.Sequential(nn.Linear(2, 2))
    for size in range(1, 9):
        net.register_parameter(f"p{size}", nn.Parameter(torch.zeros(size)))
    assert shares(net) == (36 / 42, 36 / 42, {"p8": 8, "p7": 7, "p6": 6, "p5": 5, "p4": 4})


def test_few_parameters_are_no_warning():
    net = nn.Sequential(nn.Linear(9, 10))
    net.scale = nn.Parameter(torch.ones(5))
    coverage = nc.Coverage(net, [nc.NC(0.5)])
    coverage.update(torch.eye(9))
    coverage.values()
    assert coverage.unmeasured().unseen == 5 / 105
    net.scale = nn.Parameter(torch.ones(6))
    assert Tap(net).unmeasured().noteworthy


class MyRMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))


class NormalisedLinear(nn.Module):
    """No norm, whatever its name begins with."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))


def test_embeddings_and_norms_do_not_count():
    net = nn.ModuleDict(
        {
            "tokens": nn.Embedding(100, 4),
            "bag": nn.EmbeddingBag(50, 4),
            "norms": nn.ModuleList(
                [nn.LayerNorm(4), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), MyRMSNorm(4)]
            ),
            "fc": nn.Linear(4, 5),
            "odd": NormalisedLinear(3),
        }
    )
    net.pos_embed = nn.Parameter(torch.zeros(7, 4))
    spared = 400 + 200 + 3 * 8 + 2 * 4 + 28
    assert shares(net) == ((spared + 3) / (spared + 28), 3 / 28, {"odd.weight": 3})


def test_attention_recurrent_and_parametrised_modules_own_what_is_within():
    attention = nn.MultiheadAttention(4, 2)
    net = nn.ModuleList([attention, nn.LSTM(4, 3, 2, bidirectional=True), nn.GRUCell(3, 3)])
    net.append(parametrizations.weight_norm(nn.Linear(3, 2)))
    assert shares(net) == (0, 0, {})


def test_tied_parameters_count_once():
    net = nn.ModuleDict({"tokens": nn.Embedding(10, 4), "fc": nn.Linear(4, 4), "head": nn.Linear(4, 10, bias=False)})
    net["head"].weight = net["tokens"].weight
    assert shares(net) == (0, 0, {})  # the head is measured
    net.middle, net.again = (nn.Parameter(torch.zeros(20)),) * 2
    assert shares(net) == (20 / 80, 20 / 80, {"middle": 20})


def test_what_the_choice_of_layers_leaves_out_does_not_count():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.MultiheadAttention(4, 2))
    assert shares(net, "0")[1:] == (0, {})
    assert shares(net, "0")[0] == pytest.approx(100 / 120)
    net.middle = nn.Parameter(torch.zeros(30))
    assert shares(net, "0") == (130 / 150, 30 / 150, {"middle": 30})


def test_a_chosen_block_owns_what_is_within():
    net = nn.Sequential(Functional(), nn.Linear(2, 2))
    assert shares(net)[2] == {"0.middle": 36}
    assert shares(net, ["0"])[1:] == (0, {})


def test_layers_that_were_not_measured_after_all():
    tap = Tap(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.LSTM(4, 2)))
    assert tap.unmeasured(["0", "1#1", "2[0]", "2[1]"]).unseen == 0
    found = tap.unmeasured(["0", "2[0]"])
    assert (found.unseen, dict(found.largest)) == (20 / 104, {"1.weight": 16, "1.bias": 4})


def test_a_model_that_is_one_layer():
    assert shares(nn.Linear(3, 2)) == (0, 0, {})


def test_copies_and_loaded_coverages_know_it(tmp_path):
    coverage = nc.Coverage(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), [nc.NC(0.5)])
    coverage.update(torch.eye(4))
    coverage.save(tmp_path / "a.ncov")
    assert coverage.fork().unmeasured() == coverage.unmeasured()
    assert nc.Coverage.load(tmp_path / "a.ncov", coverage.model).unmeasured() == coverage.unmeasured()
    assert nc.Coverage.load(tmp_path / "a.ncov").unmeasured() is None


SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.fixture(scope="module")
def transformers():
    import transformers

    return transformers


def test_experts_kept_as_parameters_are_named(transformers):
    config = transformers.MixtralConfig(vocab_size=50, num_key_value_heads=2, num_local_experts=4, **SMALL)
    net = transformers.MixtralForCausalLM(config).eval()
    found = Tap(net).unmeasured()
    experts = 2 * 4 * 3 * 32 * 64
    attention, router = 2 * (2 * 32 * 32 + 2 * 32 * 16), 2 * 4 * 32
    head = 32 * 50 if "lm_head" in Tap(net).chosen else 0
    assert found.unseen == pytest.approx((experts + router) / (experts + router + attention + head))
    assert list(found.largest)[:2] == [f"model.layers.{i}.mlp.experts.gate_up_proj" for i in range(2)]
    coverage = nc.Coverage(net, [nc.NC(0.5)], layers="!lm_head")
    coverage.update({"input_ids": torch.arange(1, 9).reshape(2, 4)})
    with pytest.warns(nc.CoverageWarning, match=r"layers: 89 % .*experts.gate_up_proj \(16,384\)"):
        coverage.values()


def test_transformers_of_modules_are_measured_nearly_whole(transformers):
    tiny = {"vocab_size": 50, **SMALL}
    halves = {
        "text_config": {**tiny, "max_position_embeddings": 16},
        "vision_config": {**SMALL, "image_size": 8, "patch_size": 4},
    }
    nets = [
        transformers.BertForSequenceClassification(transformers.BertConfig(**tiny)),
        transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=4)
        ),
        transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **tiny)),
        transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=50, d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4)
        ),
        transformers.ViTForImageClassification(transformers.ViTConfig(image_size=8, patch_size=4, **SMALL)),
        transformers.CLIPModel(transformers.CLIPConfig(**halves)),
    ]
    for net in nets:
        found = Tap(net).unmeasured()
        assert not found.noteworthy, f"{type(net).__name__}: {found}"

import re

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.tap.layers import choose_layers


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.attention = nn.MultiheadAttention(4, 2)


@pytest.fixture
def model():
    net = nn.Module()
    net.conv1 = nn.Conv2d(3, 3, 1)
    net.block = Block()
    net.relu = nn.ReLU()
    net.lstm = nn.LSTM(3, 2)
    net.cell = nn.GRUCell(3, 2)
    net.up = nn.ConvTranspose3d(1, 1, 1)
    net.fc = nn.Linear(3, 2)
    return net


def test_default_kinds(model):
    assert list(choose_layers(model)) == [
        "conv1", "block.conv", "block.attention", "lstm", "cell", "up", "fc",
    ]  # fmt: skip


def test_a_lone_linear_goes_by_its_class():
    assert list(choose_layers(nn.Linear(2, 2))) == ["Linear"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("conv*|fc", ["conv1", "fc"]),
        ("*conv*", ["conv1", "block.conv"]),
        ("block*", ["block.conv", "block.attention"]),
        ("*|!block*|!lstm", ["conv1", "cell", "up", "fc"]),
        ("!fc", ["conv1", "block.conv", "block.attention", "lstm", "cell", "up"]),
        ("relu", ["relu"]),
        (re.compile(r".*conv\d"), ["conv1"]),
        (re.compile(r"block\.norm"), ["block.norm"]),
        (["fc", "block.norm"], ["block.norm", "fc"]),
        (nn.ReLU, ["relu"]),
        # The projection within an attention module never runs as a module.
        ((nn.Linear, nn.BatchNorm2d), ["block.norm", "fc"]),
        # Every glob picks on its own: layers, or else what it names.
        ("conv1|relu", ["conv1", "relu"]),
        ("block|fc", ["block", "fc"]),
        ("block.*|relu|!*.conv", ["block.attention", "relu"]),
        ("fc|!block.attention.out_proj", ["fc"]),
    ],
)
def test_choices(model, choice, expected):
    assert list(choose_layers(model, choice)) == expected


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("conv1|fcc", r"no module matches 'fcc' of layers='conv1\|fcc'; did you mean 'fc'\?"),
        ("conv1|zzz*", r"no module matches 'zzz\*' of layers=.*; the model has 'conv1', 'block.conv', 'block.att"),
        ("*|!blok.conv", r"no module matches '!blok.conv' of layers=.*; did you mean 'block.conv'"),
        (
            "!block",
            r"'!block' of layers='!block' leaves nothing out: 'block' is no layer of its own; write '!block.\*'",
        ),
        (
            "block.norm|fc|!relu",
            r"'!relu' of layers='block.norm\|fc\|!relu' leaves nothing out: 'relu' is no layer.*; leave that part out",
        ),
        ("fc|many", r"'many' of layers='fc\|many' matches 'many', a ModuleList, which never runs.*write 'many.\*'"),
        ("block.attention.out_proj", r"matches 'block.attention.out_proj', a .* that never runs as a module"),
        (["fc", "many"], r"'many' of layers= matches 'many', a ModuleList, which never runs"),
    ],
)
def test_parts_that_match_nothing_are_named(model, choice, message):
    model.many = nn.ModuleList([nn.ReLU()])
    with pytest.raises(nc.NeuralcovError, match=message):
        choose_layers(model, choice)


def test_layers_of_surprise_name_what_matches_nothing():
    coverage = nc.Coverage.of_layers({"a": 2, "b": 2}, [nc.LSC(layers="a|c")])
    with pytest.raises(nc.NeuralcovError, match=r"layers='a\|c' names 'c' of this coverage, which has a, b"):
        coverage.calibrate(
            activations={"a": torch.randn(5, 2), "b": torch.randn(5, 2)}, predictions=torch.zeros(5, dtype=torch.long)
        )


def test_output_embeddings_are_no_layer_by_default():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    model = GPT2LMHeadModel(config)
    parts = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
    expected = [f"transformer.h.0.{part}" for part in parts]
    assert list(choose_layers(model)) == list(choose_layers(model, "*")) == expected
    assert list(choose_layers(nn.Sequential(model))) == [f"0.{name}" for name in expected]
    assert list(choose_layers(model, "transformer.*|lm_head")) == [*expected, "lm_head"]
    assert list(choose_layers(model, "!lm_head")) == expected
    assert "lm_head" in choose_layers(model, nn.Linear)


def test_output_embeddings_that_a_model_does_not_tell():
    class Vague(nn.Sequential):
        def get_output_embeddings(self):
            raise NotImplementedError

    assert list(choose_layers(Vague(nn.Linear(2, 2)))) == ["0"]


def test_a_pattern_matches_whole_names(model):
    with pytest.raises(nc.NeuralcovError, match="no module matches layers='conv'"):
        choose_layers(model, "conv")


def test_selecting_nothing_lists_what_there_is(model):
    with pytest.raises(
        nc.NeuralcovError, match=r"no module matches layers='dense\*'; the model has 'conv1', 'block.conv'"
    ):
        choose_layers(model, "dense*")


def test_an_unknown_name_suggests_close_ones(model):
    with pytest.raises(nc.NeuralcovError, match=r"no module 'block.cnv'; did you mean 'block.conv'"):
        choose_layers(model, ["block.cnv"])


def test_a_model_without_layers():
    with pytest.raises(nc.NeuralcovError, match="no module matches a layer with weights; ReLU has 'ReLU'"):
        choose_layers(nn.ReLU())


class PartlyScripted(nn.Module):
    def __init__(self, whole):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.jit.script(nn.Conv2d(1, 2, 3))
        self.fc = torch.jit.trace(nn.Linear(2, 4), torch.zeros(3, 2))
        inner = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        self.head = torch.jit.script(inner) if whole else torch.jit.script(inner[0])

    def forward(self, x):
        return self.head(self.fc(self.conv(x).mean((2, 3))))


def test_scripted_and_traced_layers_are_measured():
    model, inputs = PartlyScripted(whole=False).train(), torch.randn(6, 1, 5, 5)
    coverage = nc.Coverage(model, [nc.NC()])
    batch, _ = coverage.run(inputs)
    assert {name: outputs.shape[1] for name, outputs in batch.layers.items()} == {"conv": 2, "fc": 4, "head": 3}
    maps = model.conv(inputs)
    torch.testing.assert_close(batch.layers["conv"], maps.mean((2, 3)))
    torch.testing.assert_close(batch.layers["fc"], model.fc(maps.mean((2, 3))))
    assert not any(module._forward_hooks for module in model.modules())


def test_layers_inside_scripted_modules_are_named():
    with pytest.warns(nc.CoverageWarning, match=r"1 layer cannot be measured.*scripted.*'head.0'") as caught:
        coverage = nc.Coverage(PartlyScripted(whole=True), [nc.NC()], mode="keep")
    assert sum(issubclass(warning.category, nc.CoverageWarning) for warning in caught) == 1
    model = coverage.model
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    coverage.update(torch.randn(6, 1, 5, 5))
    assert list(coverage.layout) == ["conv", "fc"]
    assert before
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    with pytest.raises(nc.NeuralcovError, match=r"2 layers cannot be measured.*'0', '2'.*before it became one"):
        nc.Coverage(torch.jit.script(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))), [nc.NC()])
    lstm = nn.Sequential(nn.Linear(2, 2), torch.jit.trace(nn.LSTM(2, 3), torch.zeros(2, 2, 2)))
    with pytest.warns(nc.CoverageWarning, match="1 layer cannot be measured"):
        nc.Coverage(lstm, [nc.NC()])

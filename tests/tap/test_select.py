import re

import pytest
from torch import nn

import neuralcov as nc
from neuralcov.tap.select import choose_layers


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
        ((nn.Linear, nn.BatchNorm2d), ["block.norm", "block.attention.out_proj", "fc"]),
    ],
)
def test_choices(model, choice, expected):
    assert list(choose_layers(model, choice)) == expected


def test_a_pattern_matches_whole_names(model):
    with pytest.raises(nc.NeuralcovError, match="no module matches layers='conv'"):
        choose_layers(model, "conv")


def test_selecting_nothing_lists_what_there_is(model):
    with pytest.raises(
        nc.NeuralcovError, match=r"no module matches layers='dense\*'; Module has 'conv1', 'block.conv'"
    ):
        choose_layers(model, "dense*")


def test_an_unknown_name_suggests_close_ones(model):
    with pytest.raises(nc.NeuralcovError, match=r"no module 'block.cnv'; did you mean 'block.conv'"):
        choose_layers(model, ["block.cnv"])


def test_a_model_without_layers():
    with pytest.raises(nc.NeuralcovError, match="no module matches a layer with weights; ReLU has 'ReLU'"):
        choose_layers(nn.ReLU())

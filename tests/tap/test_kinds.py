import torch
from torch import nn

from neuralcov.tap.kinds import Kind, is_layer_by_default, kind_of, static_width


def test_transformers_conv1d_counts_without_importing_transformers():
    fake = type("Conv1D", (nn.Module,), {"__module__": "transformers.pytorch_utils"})()
    other = type("Conv1D", (nn.Module,), {"__module__": "somewhere.else"})()
    assert is_layer_by_default(fake)
    assert not is_layer_by_default(other)
    assert kind_of(fake) == Kind(channels_first=False)


def test_batch_first_is_the_modules_own_word():
    assert kind_of(nn.LSTM(2, 2, batch_first=True)).batch_axis == 0
    assert kind_of(nn.MultiheadAttention(4, 2)).batch_axis == 1


def test_widths_known_without_running():
    assert static_width(nn.Linear(2, 5)) == 5
    assert static_width(nn.Conv1d(2, 6, 1)) == 6
    assert static_width(nn.ReLU()) is None
    assert kind_of(nn.ReLU()) == Kind()
    assert torch.nn.BatchNorm2d in type(nn.BatchNorm2d(3)).__mro__
    assert kind_of(nn.BatchNorm2d(3)).channels_first

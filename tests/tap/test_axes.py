import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.tap.axes import OutputAxes, axes_of, is_layer_by_default, static_width


def test_transformers_conv1d_counts_without_importing_transformers():
    fake = type("Conv1D", (nn.Module,), {"__module__": "transformers.pytorch_utils"})()
    other = type("Conv1D", (nn.Module,), {"__module__": "somewhere.else"})()
    assert is_layer_by_default(fake)
    assert not is_layer_by_default(other)
    assert axes_of(fake) == OutputAxes(channels_first=False)


def test_batch_first_is_the_modules_own_word():
    assert axes_of(nn.LSTM(2, 2, batch_first=True)).batch_axis == 0
    assert axes_of(nn.MultiheadAttention(4, 2)).batch_axis == 1


def test_widths_known_without_running():
    assert static_width(nn.Linear(2, 5)) == 5
    assert static_width(nn.Conv1d(2, 6, 1)) == 6
    assert static_width(nn.ReLU()) is None
    assert axes_of(nn.ReLU()) == OutputAxes()
    assert torch.nn.BatchNorm2d in type(nn.BatchNorm2d(3)).__mro__
    assert axes_of(nn.BatchNorm2d(3)).channels_first


class ChannelsFirstNorm(nn.LayerNorm):
    """As in torchvision and timm: a layer norm of images."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


LayerNorm2d = type("LayerNorm2d", (ChannelsFirstNorm,), {})


def of_transformers(name, *args, **options):
    from transformers.models.convnext.modeling_convnext import ConvNextLayerNorm
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    return {"ConvNextLayerNorm": ConvNextLayerNorm, "T5LayerNorm": T5LayerNorm}[name](*args, **options)


@pytest.mark.parametrize(
    ("norm", "shape", "averaged"),
    [
        (lambda: nn.LayerNorm(5), (2, 3, 4, 5), (1, 2)),
        (lambda: nn.LayerNorm(5), (2, 5, 4, 5), (1, 2)),
        (lambda: nn.RMSNorm(5), (2, 3, 4, 5), (1, 2)),
        (lambda: nn.RMSNorm(5), (2, 3, 5), (1,)),
        (lambda: nn.LayerNorm((3, 4, 5)), (2, 3, 4, 5), (2, 3)),
        (lambda: nn.LayerNorm((4, 5)), (2, 3, 4, 5), (2, 3)),
        (lambda: nn.LayerNorm(5, elementwise_affine=False), (2, 3, 4, 5), (1, 2)),
        (lambda: ChannelsFirstNorm(5), (2, 5, 3, 4), (2, 3)),
        (lambda: LayerNorm2d(5), (2, 5, 3, 5), (2, 3)),
        (lambda: of_transformers("T5LayerNorm", 5), (2, 3, 4, 5), (1, 2)),
        (lambda: of_transformers("ConvNextLayerNorm", 5), (2, 5, 4, 5), (1, 2)),
        (lambda: of_transformers("ConvNextLayerNorm", 5, data_format="channels_first"), (2, 5, 4, 5), (2, 3)),
        (lambda: nn.GroupNorm(1, 3), (2, 3, 4, 3), (2, 3)),
        (lambda: nn.GELU(), (2, 3, 4, 5), (2, 3)),
    ],
)
def test_norms_tell_the_axis_of_their_features(norm, shape, averaged):
    """Of images laid out as (batch, height, width, channels), too."""
    module, inputs = norm(), torch.randn(shape)
    batch, _ = nc.Coverage(nn.Sequential(module), [nc.NC()], layers=[type(module)]).run(inputs, predictions=False)
    torch.testing.assert_close(batch.layers["0"], module(inputs).detach().mean(averaged))

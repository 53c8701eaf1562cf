"""What the image networks share: their two input sizes, and fresh weights."""

from __future__ import annotations

from torch import nn

from neuralcov.core.errors import InputError

_SMALLEST, _LARGE = 32, 64


def is_small(network: str, num_classes: int, input_size: int) -> bool:
    """Return whether images of this size call for the form with less striding, as they do below 64 pixels.

    >>> is_small("resnet50", 10, 32), is_small("resnet50", 1000, 224)
    (True, False)
    """
    if num_classes < 1:
        raise InputError(f"{network}(num_classes={num_classes}): num_classes must be at least 1")
    if input_size < _SMALLEST:
        raise InputError(f"{network}(input_size={input_size}): input_size must be at least {_SMALLEST}")
    return input_size < _LARGE


def initialise(network: nn.Module) -> None:
    """Draw He's normal weights (He et al., 2015), small ones in the last layer."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for layer in linear:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    nn.init.normal_(linear[-1].weight, 0.0, 0.01)

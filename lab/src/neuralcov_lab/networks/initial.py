"""Fresh weights for the image networks."""

from __future__ import annotations

from torch import nn


def initialise(network: nn.Module) -> None:
    """He's normal initialisation (He et al., 2015), and small weights in the last layer."""
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

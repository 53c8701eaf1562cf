"""Fresh weights for the image networks."""

from __future__ import annotations

from torch import nn


def initialise(network: nn.Module, *, linear_std: float) -> None:
    """He's normal initialisation for convolutions (He et al., 2015), a small normal one for linear layers."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, linear_std)
            nn.init.zeros_(module.bias)

"""The source ``demo:`` of models and data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from neuralcov.core.errors import InputError
from neuralcov.demo.digits import DigitsNet, digits
from neuralcov.sources.samples import Samples


class DemoSource:
    """Offer the shipped digits and the network that tells them apart."""

    def model(self, name: str, **arguments: Any) -> nn.Module:
        """Build the small network, with fresh weights."""
        if name != "digits":
            raise InputError(f"the demo has no network {name!r}: there is digits")
        try:
            return DigitsNet(**arguments)
        except TypeError as error:
            raise InputError(f"demo network 'digits': {error}") from error

    def data(self, name: str, split: str = "test", folder: Path | str | None = None) -> Samples:
        """Return a split of the digits."""
        if name != "digits":
            raise InputError(f"the demo has no data {name!r}: there is digits")
        if folder is not None:
            raise InputError(f"folder={str(folder)!r}: digits are shipped and come from nowhere else")
        return digits(split)

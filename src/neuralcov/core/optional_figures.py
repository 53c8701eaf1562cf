"""What few criteria can tell: figures of each layer, and the kinds that inputs are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.shapes import Float, Int

T = TypeVar("T")
NO_WORD = (1 << 63) - 1
"""The word of an input that is of no kind."""


class OptionalFigures(Generic[T]):
    """Tell nothing, by default. Base of ``Criterion``."""

    costly_value: ClassVar[bool] = False
    """Whether a value takes much longer to read than a batch to observe, so that it is read rarely on the way."""

    def visited(self, state: T) -> tuple[Float[Tensor, "width"], ...] | None:
        """Return, for each layer, the covered share of each neuron's cells; ``None`` where these are not several."""
        return None

    def details_by_layer(self, state: T) -> Mapping[str, Float[Tensor, "layers"]]:
        """Return figures of ``details`` layer by layer; NaN for a layer that has none. May wait for the device."""
        return {}

    def groupings(self, batch: Activations) -> Mapping[str, Int[Tensor, "batch"]]:
        """Return, by the name of a grouping, a random word for each input: inputs with the same word are of one kind.

        Words mean nothing beyond that, and differ between models. ``NO_WORD`` stands for an input without a kind.
        """
        return {}

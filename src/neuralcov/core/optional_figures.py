"""What few criteria can tell or do: figures of each layer, the kinds that inputs are of, layers put side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Generic, Self, TypeVar

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

    def joined(self, other: Self, a: T, b: T, *, alike: bool) -> tuple[Self, T] | None:
        """Return criterion and state of the layers of both, measured apart on the same inputs; those of ``b`` behind.

        As one process has them that observed all of these layers. ``None`` for a criterion that looks at several layers
        of an input together, as this default says.

        Args:
            other: the same criterion, as the layers of ``b`` taught it.
            a: a state.
            b: a state of other layers.
            alike: whether inputs had the same keys in both, and so were dealt to the same folds.
        """
        return None

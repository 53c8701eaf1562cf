"""What may look at every batch of a run before it is observed."""

from __future__ import annotations

from typing import Any, Protocol

from neuralcov.core.activations import Activations


class Watcher(Protocol):
    """Look at every batch of a run just before the criteria observe it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return keys of mappings that hold metadata, besides those that a coverage knows."""

    @property
    def wants_classes(self) -> bool:
        """Return whether to read off the classes that the model predicts, where there are some."""

    @property
    def looks_only(self) -> bool:
        """Return whether all it looks at are the outputs of layers, and it may do so after the criteria."""

    def watch(self, batch: Activations, inputs: Any) -> None:
        """Look at a batch, and at the inputs it is of."""

"""From a model to :class:`~neuralcov.core.activations.Activations`."""

from neuralcov.tap.inputs import Batch, unpack_batch
from neuralcov.tap.select import LayerChoice, choose_layers
from neuralcov.tap.tap import Tap

__all__ = ["Batch", "LayerChoice", "Tap", "choose_layers", "unpack_batch"]

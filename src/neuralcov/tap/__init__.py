"""From a model to :class:`~neuralcov.core.activations.Activations`."""

from neuralcov.tap.inputs import Batch, unpack_batch
from neuralcov.tap.select import LayerChoice, choose_layers
from neuralcov.tap.tap import Tap
from neuralcov.tap.unmeasured import Unmeasured

__all__ = ["Batch", "LayerChoice", "Tap", "Unmeasured", "choose_layers", "unpack_batch"]

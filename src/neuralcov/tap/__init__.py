"""From a model to ``Activations``."""

from neuralcov.tap.hooks import Tap
from neuralcov.tap.inputs import Batch, unpack_batch
from neuralcov.tap.layers import LayerChoice, choose_layers

__all__ = ["Batch", "LayerChoice", "Tap", "choose_layers", "unpack_batch"]

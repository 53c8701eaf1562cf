"""The model under test: one object, whoever asks for it."""

import functools

from neuralcov import demo


@functools.cache
def classifier() -> demo.DigitsNet:
    """Return the network, trained when it is first asked for."""
    return demo.train_digits(epochs=6, progress=False)

"""The two input sizes the image networks come in: small images, and ImageNet's."""

from __future__ import annotations

from neuralcov.core.errors import InputError

_SMALLEST, _LARGE = 32, 64


def is_small(network: str, num_classes: int, input_size: int) -> bool:
    """Whether images of this size call for the form with less striding, as they do below 64 pixels.

    >>> is_small("resnet50", 10, 32), is_small("resnet50", 1000, 224)
    (True, False)
    """
    if num_classes < 1:
        raise InputError(f"{network}(num_classes={num_classes}): num_classes must be at least 1")
    if input_size < _SMALLEST:
        raise InputError(f"{network}(input_size={input_size}): input_size must be at least {_SMALLEST}")
    return input_size < _LARGE

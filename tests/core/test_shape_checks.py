"""`make shapes` checks what annotations promise: a wrong shape is refused there, and only there."""

import os

import pytest
import torch

from neuralcov.kernels.hashing import pack


@pytest.mark.skipif("NEURALCOV_SHAPES" not in os.environ, reason="make shapes runs this")
def test_a_wrong_type_is_refused():
    with pytest.raises(Exception, match=r"Bool\[Tensor, '\*rows width'\]"):
        pack(torch.zeros(3))

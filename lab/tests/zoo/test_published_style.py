"""Stylising with the published AdaIN networks."""

import numpy as np
import pytest
import torch

from neuralcov.fuzz.mutations import MutationDraw
from neuralcov.fuzz.mutations.style import Stylise, style_folder
from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError


def test_the_published_networks_agree_with_their_own_forward_pass():
    try:
        network = zoo.adain()
    except DataError:
        pytest.skip("the AdaIN weights are not here: neuralcov data get adain")
    styles = style_folder()
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    mutation = Stylise(network.encoder, network.decoder, styles, strengths=(0.6,), side=64)
    found = mutation.apply(images, MutationDraw.of_batch(np.array([0, 3])))
    with torch.no_grad():
        wanted = [
            network(images[row : row + 1], styles[name][None], 0.6) for row, name in enumerate(("bricks", "waves"))
        ]
    torch.testing.assert_close(found, torch.cat(wanted), atol=1e-4, rtol=0)

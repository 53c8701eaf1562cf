"""A network that tells digits apart, and a few digits to start from."""

import pytest

from neuralcov import demo


@pytest.fixture(scope="session")
def net(digits_net):
    return digits_net


@pytest.fixture(scope="session")
def digits():
    return demo.digits("test").take(slice(0, 60))

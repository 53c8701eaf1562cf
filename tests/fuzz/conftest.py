"""A network that tells digits apart, and a few digits to start from."""

import pytest

from neuralcov import zoo


@pytest.fixture(scope="session")
def net():
    return zoo.train_digits(epochs=3, progress=False)


@pytest.fixture(scope="session")
def digits():
    return zoo.digits("test").take(slice(0, 60))

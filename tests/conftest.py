"""What several parts of the tests share."""

import pytest

from neuralcov import demo

# Installed and run by tests/criteria/test_outside_package.py.
collect_ignore = ["outside_package"]


@pytest.fixture(scope="session")
def digits_net():
    """A network that tells digits apart, trained for a few seconds."""
    return demo.train_digits(epochs=3, progress=False)


@pytest.fixture
def small_blocks(monkeypatch):
    """Traces of six neurons in blocks of a hundred rows."""
    monkeypatch.setattr("neuralcov.statistics.row_blocks.BLOCK_BYTES", 4 * 6 * 100)

"""What several parts of the tests share."""

import pytest
import torch

from neuralcov import demo

# Installed and run by tests/criteria/test_outside_package.py.
collect_ignore = ["outside_package"]


@pytest.fixture(autouse=True)
def gradients_as_found():
    """Fail a test that leaves gradients off; otherwise the next one that trains a network would fail."""
    yield
    left = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert left, "gradients are left off"


@pytest.fixture(scope="session")
def digits_net():
    """A network that tells digits apart, trained for a few seconds."""
    return demo.train_digits(epochs=3, progress=False)


@pytest.fixture
def small_blocks(monkeypatch):
    """Traces of six neurons in blocks of a hundred rows."""
    monkeypatch.setattr("neuralcov.statistics.row_blocks.BLOCK_BYTES", 4 * 6 * 100)

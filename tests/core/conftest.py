import pytest


@pytest.fixture
def small_blocks(monkeypatch):
    """Traces of six neurons in blocks of a hundred rows."""
    monkeypatch.setattr("neuralcov.statistics.traces._BLOCK_BYTES", 4 * 6 * 100)

"""What a measurement gave, as plain data."""

from neuralcov.results.input_table import InputTable
from neuralcov.results.results import Results
from neuralcov.results.slices import SliceRow, SliceTable

__all__ = ["InputTable", "Results", "SliceRow", "SliceTable"]

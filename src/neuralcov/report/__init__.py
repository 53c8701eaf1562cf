"""Results as dataclasses, and what is written from them."""

from neuralcov.report.results import Measurement, measurement
from neuralcov.report.text import layer_table, value_table

__all__ = ["Measurement", "layer_table", "measurement", "value_table"]

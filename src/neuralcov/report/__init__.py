"""What is written from results."""

from neuralcov.report.text import layer_table, value_table

__all__ = ["layer_table", "value_table"]

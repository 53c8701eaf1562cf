"""What is written from results."""

from neuralcov.report.text import layer_table, slice_tables, value_table

__all__ = ["layer_table", "slice_tables", "value_table"]

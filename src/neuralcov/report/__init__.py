"""What is written from results."""

from neuralcov.report.text import layer_tables, missing_table, sanity_lines, slice_tables, summary, value_table

__all__ = ["layer_tables", "missing_table", "sanity_lines", "slice_tables", "summary", "value_table"]

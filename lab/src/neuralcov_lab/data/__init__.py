"""Data sets read into samples."""

"""Faults: found, run again, shrunk, drawn and judged."""

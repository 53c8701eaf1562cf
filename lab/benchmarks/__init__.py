"""Benchmarks of what the lab trains."""

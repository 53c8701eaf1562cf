"""The lab's tests and benchmarks; the package itself lies in ``lab/src``."""

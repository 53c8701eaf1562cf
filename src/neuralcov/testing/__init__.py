"""Laws that any criterion must obey, for people who write their own."""

from neuralcov.testing.laws import check_criterion, check_devices

__all__ = ["check_criterion", "check_devices"]

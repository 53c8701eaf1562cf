"""Digits and a small network, shipped to try things on: ``demo:digits`` on the command line."""

from neuralcov.demo.digits import DigitsNet, digits, train_digits
from neuralcov.demo.source import DemoSource

__all__ = ["DemoSource", "DigitsNet", "digits", "train_digits"]

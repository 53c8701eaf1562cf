"""Three criteria from outside neuralcov, as docs/adding-a-criterion.md shows them."""

from acme.loud import LouderThanUsual
from acme.peaks import Peaks
from acme.silent import Silent

__all__ = ["LouderThanUsual", "Peaks", "Silent"]

"""SS, sign-sign coverage."""

from neuralcov.criteria.ss.ss import SS

__all__ = ["SS"]

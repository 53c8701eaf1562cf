"""What tests of tools share."""

from tests.cli.conftest import run

__all__ = ["run"]

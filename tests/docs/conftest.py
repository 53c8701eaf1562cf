"""What tests of pages share."""

from tests.cli.conftest import run

__all__ = ["run"]

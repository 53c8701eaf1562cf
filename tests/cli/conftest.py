import sys

import pytest

from neuralcov.cli.app import main


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process; give its exit code, output and complaints."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["neuralcov", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    monkeypatch.setenv("COLUMNS", "160")
    return command

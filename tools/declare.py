"""Write down the commands as they are declared: ``python -m tools.declare`` (see neuralcov.cli.declared)."""

from __future__ import annotations

import json
from pathlib import Path

import neuralcov.cli.declared as declared

PLACE = Path(declared.__file__).with_name("declared.json")


def content() -> str:
    """Return what the file should hold."""
    found = {name: declared.declare(declared.defined(name)) for name in declared.COMMANDS}
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    PLACE.write_text(content(), encoding="utf-8")

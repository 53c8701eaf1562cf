"""Write the notebooks of the examples: ``python -m tools.notebooks`` makes them from scripts in cells.

A script with ``# %%`` before its cells is the source; its notebook holds the same, without outputs. A test compares
them and runs both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDER = EXAMPLES / "notebooks"


def scripts() -> list[Path]:
    """Return the examples that are written in cells."""
    return [path for path in sorted(EXAMPLES.glob("*.py")) if path.read_text(encoding="utf-8").startswith("# %%")]


def notebook(script: str) -> str:
    """Return the notebook of a script as the text of its file."""
    cells = [_cell(number, text) for number, text in enumerate(script.split("# %%")[1:])]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, text: str) -> dict[str, Any]:
    kind, _, body = text.partition("\n")
    lines = body.strip("\n").splitlines()
    if "[markdown]" in kind:
        prose = [line.removeprefix("#").removeprefix(" ") for line in lines]
        return {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}, "source": _joined(prose)}
    code = {"execution_count": None, "metadata": {}, "outputs": [], "source": _joined(lines)}
    return {"cell_type": "code", "id": f"cell-{number}", **code}


def _joined(lines: list[str]) -> list[str]:
    return [f"{line}\n" for line in lines[:-1]] + lines[-1:]


def main() -> None:
    """Write every notebook."""
    FOLDER.mkdir(exist_ok=True)
    for path in scripts():
        (FOLDER / f"{path.stem}.ipynb").write_text(notebook(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

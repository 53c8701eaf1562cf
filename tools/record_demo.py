"""Record ``neuralcov demo`` as pictures: ``python -m tools.record_demo`` writes docs/images/demo-{light,dark}.svg."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

FOLDER = Path(__file__).parent.parent / "docs" / "images"
COLUMNS = 104
LIGHT = TerminalTheme(
    (255, 255, 255),
    (31, 35, 40),
    [
        (36, 41, 47),
        (179, 29, 40),
        (17, 99, 41),
        (125, 78, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (87, 96, 106),
    ],
)
# As rich has it, but without the window's fonts, which would be fetched from the network.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"
 role="img" aria-label="neuralcov demo in a terminal">
<style>
.{unique_id}-matrix {{
  font: {char_height}px/{line_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def main() -> None:
    """Run the demo and draw what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        told = os.environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
        done = subprocess.run(
            [sys.executable, "-m", "neuralcov", "demo"],
            cwd=folder,
            env=told,
            capture_output=True,
            text=True,
            check=True,
        )
    for name, theme in (("light", LIGHT), ("dark", DIMMED_MONOKAI)):
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
        console.print(Text("$ neuralcov demo", "bold"))
        console.print(Text.from_ansi(done.stdout))
        svg = console.export_svg(title="", theme=theme, code_format=FORMAT, unique_id="demo")
        (FOLDER / f"demo-{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()

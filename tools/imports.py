"""Draw which sub-package imports which into docs/architecture.md.

python tools/imports.py           # write it
python tools/imports.py --check   # exit with 1 if it is not up to date
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PACKAGE = REPOSITORY / "src" / "neuralcov"
PAGE = REPOSITORY / "docs" / "architecture.md"
START, END = "<!-- imports: made by tools/imports.py -->", "<!-- imports: end -->"


def imports() -> set[tuple[str, str]]:
    """Return which sub-package imports which: inside functions too, for types only not."""
    found: set[tuple[str, str]] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        if len(parts) > 1:
            for other in _imported(ast.parse(path.read_text())):
                if other != parts[0] and (PACKAGE / other).is_dir():
                    found.add((parts[0], other))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """Iterate over the sub-packages that a file imports from, once for each module."""
    for node in _run(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names = [node.module] if node.module != "neuralcov" else [f"neuralcov.{n.name}" for n in node.names]
        elif isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        else:
            continue
        for name in names:
            package, _, rest = name.partition(".")
            if package == "neuralcov" and rest:
                yield rest.partition(".")[0]


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """Iterate over what is run: all but what stands below ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node
            yield from _run(node)


def levels(edges: set[tuple[str, str]]) -> dict[str, int]:
    """Return how high each sub-package lies: one above the highest that it imports."""
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    found: dict[str, int] = {}

    def level(folder: str, above: tuple[str, ...] = ()) -> int:
        if folder not in found:
            below = [other for one, other in edges if one == folder and other not in (*above, folder)]
            found[folder] = 1 + max((level(other, (*above, folder)) for other in below), default=-1)
        return found[folder]

    for folder in sorted(folders):
        level(folder)
    return found


def diagram() -> str:
    """Return a Mermaid diagram, the top above; edges that others imply are left out, the table has them all."""
    edges = imports()
    height = levels(edges)
    lines = ["```mermaid", "flowchart TD"]
    for folder in sorted(height, key=lambda name: (-height[name], name)):
        lines.append(f"  {folder}")
    for one, other in sorted(edges):
        if not _implied(one, other, edges):
            lines.append(f"  {one} --> {other}")
    lines += ["```", "", "| folder | imports |", "|---|---|"]
    for folder in sorted(height, key=lambda name: (-height[name], name)):
        below = sorted(other for one, other in edges if one == folder)
        lines.append(f"| `{folder}` | {', '.join(below) or 'nothing'} |")
    return "\n".join(lines)


def _implied(one: str, other: str, edges: set[tuple[str, str]]) -> bool:
    """Return whether there is a longer way from one sub-package to another."""
    waiting = [below for above, below in edges if above == one and below != other]
    seen = {one}
    while waiting:
        folder = waiting.pop()
        if folder == other:
            return True
        if folder not in seen:
            seen.add(folder)
            waiting += [below for above, below in edges if above == folder]
    return False


def page(text: str) -> str:
    """Return the page with the present diagram between its two markers."""
    before, rest = text.split(START)
    return f"{before}{START}\n\n{diagram()}\n\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Write the page, or check it."""
    text = PAGE.read_text()
    wanted = page(text)
    if "--check" in sys.argv:
        if text != wanted:
            print(f"{PAGE}: the imports have changed: run python tools/imports.py")
        return int(text != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())

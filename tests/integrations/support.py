"""This package as if it were installed: tests run the entry points of this source tree, whatever is installed."""

import os
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install_entry_points(site):
    """Write what pip would write of the entry points."""
    folder = site / "neuralcov-0.1.0.dist-info"
    folder.mkdir(parents=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sections = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())])
        for group, entries in project["entry-points"].items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(sections))
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: neuralcov\nVersion: 0.1.0\n")


def environment(site):
    """The variables by which other processes find it."""
    places = [str(site), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, places)), "OMP_NUM_THREADS": "1"}

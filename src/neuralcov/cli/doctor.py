"""``neuralcov doctor``: what is installed here, what is missing, and what to install."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from neuralcov import __version__
from neuralcov.cli.console import output
from neuralcov.core.criterion import Criterion
from neuralcov.core.files import write_json
from neuralcov.core.find_criterion import criterion_class
from neuralcov.core.memory import show_bytes
from neuralcov.core.registry import load_offered
from neuralcov.kernels.operations import triton_available

# A requirement as metadata tell it: a name, perhaps a version, perhaps the extra it belongs to.
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*?)\s*(?:;(.*))?$")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
# Extras for those who work on neuralcov itself, or that only name others.
_HIDDEN = ("dev", "all")


def doctor(
    json_file: Annotated[str | None, typer.Option("--json", help="Write the same as JSON there.")] = None,
) -> None:
    """Show versions, devices, caches and optional packages, and say what to install for what is missing."""
    found = diagnose()
    console = output()
    table = Table(title="neuralcov", title_justify="left", show_header=False)
    table.add_column()
    table.add_column()
    for name, told in {**found["versions"], **found["machine"]}.items():
        table.add_row(name, str(told))
    for name, told in found["caches"].items():
        table.add_row(name, _place(told))
    table.add_row("criteria", ", ".join(found["criteria"]))
    table.add_row("other packages", ", ".join(found["packages"]) or "none")
    console.print(table)
    extras = Table(title="optional packages", title_justify="left")
    for column in ("extra", "has", "lacks"):
        extras.add_column(column)
    for extra, told in found["extras"].items():
        has = ", ".join(f"{name} {number}" for name, number in told["has"].items())
        extras.add_row(extra, has or "–", ", ".join(told["lacks"]) or "–")
    console.print(extras)
    missing = [extra for extra, told in found["extras"].items() if told["lacks"]]
    if missing:
        console.print(
            f"To install what an extra lacks, from a clone: pip install -e '.[{missing[0]}]'; the extras with gaps are "
            f"{', '.join(missing)}.",
            soft_wrap=True,
            highlight=False,
        )
    else:
        console.print("Every extra is complete.", highlight=False)
    if json_file is not None:
        write_json(json_file, found)


def diagnose() -> dict[str, Any]:
    """Return what is installed here, as plain data."""
    load_offered()
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "versions": {
            "neuralcov": __version__,
            "Python": platform.python_version(),
            **{name: _version(name) or "missing" for name in sorted(_required(None))},
        },
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count(),
            "threads of PyTorch": torch.get_num_threads(),
            "GPUs": ", ".join(devices) or "none: everything runs on the CPU",
            "kernels of our own": "yes" if devices and triton_available(torch.device("cuda")) else "no, plain PyTorch",
        },
        "caches": caches(),
        "criteria": sorted(found.__name__ for found in map(criterion_class, Criterion.known) if found is not None),
        "packages": sorted(
            {entry.dist.name for group in _GROUPS for entry in entry_points(group=group) if entry.dist is not None}
            - {"neuralcov"}
        ),
        "extras": {extra: _state_of(extra) for extra in _extras() if extra not in _HIDDEN},
    }


def caches() -> dict[str, dict[str, Any]]:
    """Return where files are kept between runs or for the length of one, and how much room is there."""
    home = Path.home() / ".cache"
    folders = {
        "training traces beyond memory=": Path(tempfile.gettempdir()),
        "models of Hugging Face": Path(os.environ.get("HF_HOME") or home / "huggingface"),
        "models of torchvision and torch.hub": Path(os.environ.get("TORCH_HOME") or home / "torch"),
        "compiled kernels": Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"),
    }
    return {name: _room(folder) for name, folder in folders.items()}


def _room(folder: Path) -> dict[str, Any]:
    """Return a folder, whether it is there, and the bytes that are free where it is or would be made."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return {"folder": str(folder), "exists": folder.is_dir(), "free": shutil.disk_usage(there).free}


def _place(told: dict[str, Any]) -> str:
    state = "" if told["exists"] else ", not made yet"
    return f"{told['folder']}{state}, {show_bytes(told['free'])} free"


# The entry points through which other packages add models, data, criteria and commands.
_GROUPS = ("neuralcov.sources", "neuralcov.criteria", "neuralcov.commands")


def _state_of(extra: str) -> dict[str, Any]:
    names = sorted(_required(extra) - {"neuralcov"})
    versions = {name: _version(name) for name in names}
    return {
        "has": {name: number for name, number in versions.items() if number is not None},
        "lacks": [name for name, number in versions.items() if number is None],
    }


def _extras() -> list[str]:
    found = (_EXTRA.search(line) for line in requires("neuralcov") or ())
    return sorted({match.group(1) for match in found if match is not None})


def _required(extra: str | None) -> set[str]:
    """Return the packages that neuralcov, or one of its extras, names."""
    names = set()
    for line in requires("neuralcov") or ():
        match = _REQUIREMENT.match(line)
        belongs = _EXTRA.search(line)
        if match is not None and (belongs.group(1) if belongs else None) == extra:
            names.add(match.group(1))
    return names


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

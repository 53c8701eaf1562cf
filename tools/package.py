"""Build wheel and sdist as a release does, and try each in an empty environment: ``python -m tools.package [FOLDER]``.

Builds twice with the commit's time and compares byte for byte, holds the wheel to its size, installs each file where
nothing else is installed, runs the commands a newcomer runs there, and the tests of the sdist from the unpacked sdist.
With ``--quick`` the tests of the sdist are a few. Needs git, and the package ``build`` where it runs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
LARGEST_WHEEL = 1_000_000
QUICK_TESTS = ("tests/docs", "tests/test_api.py", "tests/test_qualification.py", "tests/golden", "tests/core")
# What a newcomer runs first, in a folder that holds nothing.
FIRST_STEPS = (
    ("--version",),
    ("doctor",),
    ("demo",),
    (
        "measure",
        "demo:digits",
        "--data",
        "demo:digits:test",
        "--calibrate",
        "demo:digits:train",
        "--save",
        "suite.ncov",
    ),
    ("show", "suite.ncov"),
    ("gate", "suite.ncov", "--min", "inputs=500", "--allow-alarm", "accuracy=the weights are random"),
)


def main() -> None:
    """Build, compare, install, try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="where wheel and sdist go")
    parser.add_argument("--quick", action="store_true", help="run a few of the sdist's tests only")
    parser.add_argument("--try", dest="built", action="store_true", help="build nothing, try what is in the folder")
    asked = parser.parse_args()
    built = [*asked.folder.glob("*.whl"), *asked.folder.glob("*.tar.gz")] if asked.built else build_twice(asked.folder)
    for file in built:
        with tempfile.TemporaryDirectory() as place:
            programs = installed(file, Path(place))
            first_steps(programs, Path(place))
            if file.name.endswith(".tar.gz"):
                test_sdist(file, programs, Path(place), QUICK_TESTS if asked.quick else ("tests",))
    print(f"installed and tried on Python {sys.version.split()[0]}: {', '.join(file.name for file in built)}")


def build_twice(folder: Path) -> list[Path]:
    """Build wheel and sdist into a folder, and once more elsewhere: the same bytes must come out."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as again:
        for place in (folder, Path(again)):
            _run([sys.executable, "-m", "build", "--outdir", place, ROOT], SOURCE_DATE_EPOCH=_time_of_commit())
        built = sorted(folder.iterdir())
        for file in built:
            digest, other = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (file, Path(again) / file.name))
            if digest != other:
                sys.exit(f"{file.name}: two builds of one commit differ, {digest} and {other}")
            print(f"{digest}  {file.name}  {file.stat().st_size:,} bytes")
    (wheel,) = (file for file in built if file.suffix == ".whl")
    if wheel.stat().st_size >= LARGEST_WHEEL:
        sys.exit(f"{wheel.name}: {wheel.stat().st_size:,} bytes, expected less than {LARGEST_WHEEL:,}")
    return built


def installed(file: Path, place: Path) -> Path:
    """Install a file into an empty environment; return the folder of its programs."""
    venv.create(place / "env", with_pip=True)
    programs = place / "env" / ("Scripts" if os.name == "nt" else "bin")
    _run([programs / "python", "-m", "pip", "install", "--quiet", file.resolve()])
    return programs


def first_steps(programs: Path, place: Path) -> None:
    """Run what a newcomer runs first, in an empty folder."""
    (place / "work").mkdir()
    for step in FIRST_STEPS:
        _run([programs / "neuralcov", *step], folder=place / "work")


def test_sdist(file: Path, programs: Path, place: Path, tests: Sequence[str]) -> None:
    """Run the tests that an sdist holds from where it was unpacked, on what was installed from it."""
    with tarfile.open(file) as archive:
        # Python before 3.11.4 has no filters; the archive is the one just built.
        archive.extractall(place, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = place.glob("neuralcov-*")
    _run([programs / "python", "-m", "pip", "install", "--quiet", f"{file.resolve()}[dev]"])
    _run([programs / "python", "-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", *tests], folder=unpacked)


def _run(command: Sequence[str | Path], folder: Path | None = None, **variables: str) -> None:
    # Nothing of the environment that started this may be found by the one that is tried.
    told = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    print("$", " ".join(map(str, command)), flush=True)
    subprocess.run([str(word) for word in command], check=True, cwd=folder, env=told)


def _time_of_commit() -> str:
    told = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    )  # fmt: skip
    return told.stdout.strip()


if __name__ == "__main__":
    main()

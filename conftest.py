"""What all tests share: shapes in annotations are checked where `make shapes` asks for it, time limits are not."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def _load_kernels_unchecked() -> None:
    """Triton compiles the source of its functions, which checks of their arguments would wrap."""
    name, path = "neuralcov.kernels.triton_kernels", Path(__file__).parent / "src/neuralcov/kernels/triton_kernels.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module


def checked(function: Any) -> Any:
    """Check the shapes of a function's tensors; mypy sees to the rest, and tests pass wrong values on purpose."""
    shapes = {name: hint for name, hint in function.__annotations__.items() if "[Tensor, " in str(hint)}
    if not shapes:
        return function
    function.__annotations__ = dict.fromkeys(function.__annotations__, Any) | shapes
    return importlib.import_module("beartype").beartype(function)


def pytest_configure(config: pytest.Config) -> None:
    """Not in pyproject.toml, where it would be read, and neuralcov imported, before checks are in place."""
    config.addinivalue_line("filterwarnings", "error::neuralcov.core.errors.CoverageWarning:tests")


# Every call then takes several times as long, which would be too much for property tests.
if os.environ.get("NEURALCOV_SHAPES"):
    if importlib.util.find_spec("triton") is not None:
        _load_kernels_unchecked()
    # The package itself and its plugin for pytest are there already, and import nothing of it.
    assert "neuralcov.core.shapes" not in sys.modules, "imported before its annotations could be checked"
    install_import_hook(
        ["neuralcov.core", "neuralcov.kernels", "neuralcov.statistics", "neuralcov.criteria", "neuralcov.tap"],
        "conftest.checked",
    )

# How long an example takes says nothing on a busy machine.
settings.register_profile("neuralcov", deadline=None)
settings.load_profile("neuralcov")

# Needs Triton, which is optional: it is imported where it is installed and tried by tests/kernels/test_operations.py.
collect_ignore = ["src/neuralcov/kernels/triton_kernels.py"]

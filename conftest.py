"""Checks the shapes in type annotations while tests run."""

import os

from jaxtyping import install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")
install_import_hook(["neuralcov.core", "neuralcov.criteria", "neuralcov.tap"], "beartype.beartype")

# Needs Triton, which is optional: it is imported where it is installed and tried by tests/core/test_kernels.py.
collect_ignore = ["src/neuralcov/core/triton_kernels.py"]

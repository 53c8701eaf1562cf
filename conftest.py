"""What all tests share: shapes in type annotations are checked, time limits are not."""

import os

from hypothesis import settings
from jaxtyping import install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")
install_import_hook(["neuralcov.core", "neuralcov.criteria", "neuralcov.tap"], "beartype.beartype")

# How long an example takes says nothing on a busy machine.
settings.register_profile("neuralcov", deadline=None)
settings.load_profile("neuralcov")

# Needs Triton, which is optional: it is imported where it is installed and tried by tests/core/test_kernels.py.
collect_ignore = ["src/neuralcov/core/triton_kernels.py"]

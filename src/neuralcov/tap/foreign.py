"""Turn what users hold (a file of ONNX, a Keras model, an exported program) into the module that the tap reads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.tap.keras import KerasModel
from neuralcov.tap.onnx import OnnxModel


def as_module(model: Any) -> Any:
    """Return a model of another runtime as a module; leave everything else as it is.

    ``FILE.onnx``, its bytes and an ``onnx.ModelProto`` become an ``OnnxModel``, a ``keras.Model`` becomes a
    ``KerasModel``. What ``torch.export`` made becomes the tree of modules that it was made of.
    """
    if isinstance(model, (str, os.PathLike)):
        refuse_exported_file(model)
        if not is_onnx(model):
            raise InputError(f"model {os.fspath(model)!r}: expected a module, or a file that ends in .onnx")
        return OnnxModel(model).eval()
    # None of them has a training mode.
    if isinstance(model, bytes) or _is_a(model, "onnx", "ModelProto"):
        return OnnxModel(model).eval()
    if _is_a(model, "torch.export", "ExportedProgram"):
        return sys.modules["torch.export"].unflatten(model).eval()
    return KerasModel(model).eval() if _is_a(model, "keras", "Model") else model


def is_onnx(path: str | os.PathLike[str]) -> bool:
    """Return whether a text names a file of ONNX.

    >>> is_onnx("models/net.onnx"), is_onnx("timm:resnet18")
    (True, False)
    """
    return Path(path).suffix.lower() == ".onnx"


def refuse_exported_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file of ``torch.export``, which cannot be read without running what it may hold."""
    if Path(path).suffix.lower() == ".pt2":
        raise InputError(
            f"{os.fspath(path)}: reading a .pt2 file unpickles what it holds, which can run code: if you trust it, "
            "give what torch.export.load returns, on the command line by a function of yours (package.module:factory)"
        )


def _is_a(model: Any, package: str, name: str) -> bool:
    """Return whether a model is of another package's class; one that nobody imported has no instances."""
    cls = getattr(sys.modules.get(package), name, None)
    return isinstance(cls, type) and isinstance(model, cls)

"""ONNX models, run by onnxruntime, as modules whose layers the tap can read.

The outputs of the layers are appended to the graph's own. Each layer is a module that passes its output on, so that
all that works on a torch model by hooks works here: choice of layers, pooling, padding, files. What needs the
functions of torch in between (relevance, CUDA graphs) does not.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralcov.core.arguments import require
from neuralcov.core.errors import CoverageWarning, InputError, LayerError
from neuralcov.tap.onnx_graph import OnnxGraph, OnnxLayer
from neuralcov.tap.readout import ReadOut, kind_of_layer, place

_WHAT = "ONNX models"
_TYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "float16": torch.float16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
_MOST_BYTES = 2**31 - 1


class OnnxOutputs(tuple[Any, ...]):
    """The outputs of a graph that has several, in its order."""

    @property
    def logits(self) -> Tensor | None:
        """The first output with a number per class, since classifiers of scikit-learn put the class itself first."""
        tensors = [part for part in self if isinstance(part, Tensor)]
        scores = [part for part in tensors if part.is_floating_point() and part.dim() == 2 and part.shape[1] > 1]
        return next(iter(scores), None) if tensors and not tensors[0].is_floating_point() else None


class OnnxModel(nn.Module):
    """Run an ONNX model; Conv, ConvTranspose, Gemm and MatMul with weights are its layers.

    Args:
        model: the path of a file, its bytes, or an ``onnx.ModelProto``, which is not changed.
        providers: execution providers of onnxruntime, the CPU's by default.
    """

    def __init__(self, model: Any, *, providers: Sequence[str] = ("CPUExecutionProvider",)) -> None:
        super().__init__()
        runtime = require("onnxruntime", _WHAT, extra="onnx")
        proto, name = _read(model)
        _without_maps(proto.graph)
        graph = OnnxGraph(proto.graph)
        layers = graph.layers()
        if not layers:
            raise LayerError(
                f"{name}: no Conv, Gemm or MatMul with weights is in this graph: expected a network, in floats or "
                "with QuantizeLinear and DequantizeLinear (QDQ) around its layers"
            )
        if graph.unread():
            kinds = ", ".join(f"{count} {kind}" for kind, count in graph.unread().items())
            warnings.warn(
                f"{name}: not measured: {kinds}; only Conv, ConvTranspose, Gemm and MatMul with weights are, before "
                "a runtime has fused them or turned them to integers",
                CoverageWarning,
                stacklevel=2,
            )
        self._own = len(proto.graph.output)
        self._readings = [(layer.output, self._add(layer)) for layer in layers]
        self._keep_weights(proto.graph, layers)
        self._session = _session(runtime, proto, [layer.output for layer in layers], list(providers), name)
        self._wants = {item.name: item for item in self._session.get_inputs()}
        shapes = [tuple(item.shape[1:]) for item in self._wants.values()]
        if len(shapes) == 1 and all(isinstance(length, int) for length in shapes[0]):
            self.input_shape = shapes[0]

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        """Return the graph's outputs, a single one by itself; hand each layer's output to those who listen."""
        given = dict(zip(self._wants, inputs, strict=False)) | named
        if len(inputs) + len(named) != len(self._wants) or given.keys() != self._wants.keys():
            told = [*map(str, range(len(inputs))), *named]
            raise InputError(f"inputs {', '.join(told)}: the graph takes {', '.join(self._wants)}")
        first = next(iter(given.values()))
        wanted = [name for name, layer in self._readings if layer.wanted]
        names = list(dict.fromkeys([*(item.name for item in self._session.get_outputs()[: self._own]), *wanted]))
        found = dict(zip(names, self._run(names, given), strict=True))
        tensors = {name: _tensor(value, first.device) for name, value in found.items()}
        for name, layer in self._readings:
            if layer.wanted:
                layer(tensors[name])
        outputs = [tensors[name] for name in names[: self._own]]
        return outputs[0] if len(outputs) == 1 else OnnxOutputs(outputs)

    def _run(self, names: list[str], given: dict[str, Tensor]) -> list[Any]:
        """Run the session; one whose graph has a batch of fixed size is given that many rows at a time."""
        arrays = {name: _array(value, self._wants[name]) for name, value in given.items()}
        fixed = {item.shape[0] for item in self._wants.values() if item.shape and isinstance(item.shape[0], int)}
        rows = len(next(iter(arrays.values())))
        size = next(iter(fixed)) if len(fixed) == 1 else rows
        if size == rows or not rows:
            return self._once(names, arrays)
        parts = []
        for start in range(0, rows, size):
            # The last rows are filled up with the last one, and cut off again.
            take = np.minimum(np.arange(start, start + size), rows - 1)
            parts.append(self._once(names, {name: array[take] for name, array in arrays.items()}))
        for name, part in zip(names, parts[0], strict=True):
            if np.ndim(part) == 0 or len(part) != size:
                raise InputError(
                    f"{rows} inputs for a graph with a batch of {size}, whose {name!r} of shape {np.shape(part)} "
                    "cannot be put together: export it with a dynamic batch axis, or leave that layer out (layers=)"
                )
        return [np.concatenate(some)[:rows] for some in zip(*parts, strict=True)]

    def _once(self, names: list[str], arrays: dict[str, Any]) -> list[Any]:
        try:
            return list(self._session.run(names, arrays))
        except Exception as error:
            # The runtime has a type of error for each of its codes, with no base of their own.
            shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(f"onnxruntime does not take inputs {shapes}: {reason}") from error

    def _add(self, layer: OnnxLayer) -> ReadOut:
        """Make the module of a layer; a second node with the same weight is a second call of the first."""
        known = dict(self.named_modules()).get(layer.name)
        if isinstance(known, ReadOut) and known.out_features == layer.width and type(known).__name__ == layer.kind:
            return known
        module = kind_of_layer(layer.kind)(layer.width, channels_first=layer.channels_first)
        place(self, layer.name, module)
        return module

    def _keep_weights(self, graph: Any, layers: list[OnnxLayer]) -> None:
        """Hold the initialisers, by which files tell models apart; those of other nodes as buffers of the model."""
        to_array = require("onnx.numpy_helper", _WHAT, extra="onnx").to_array
        owners = {
            name: module for layer, (_, module) in zip(layers, self._readings, strict=True) for name in layer.constants
        }
        for item in graph.initializer:
            array = np.array(to_array(item))
            if (
                array.dtype.kind not in "fiub"
                or array.dtype.itemsize > 8
                or array.dtype in (np.uint16, np.uint32, np.uint64)
            ):
                continue
            value, owner = torch.from_numpy(array), owners.get(item.name, self)
            name = item.name.rpartition(".")[2] if owner is not self else "constant " + item.name.replace(".", "/")
            while hasattr(owner, name):
                name += "_"
            if owner is not self and value.is_floating_point():
                owner.register_parameter(name, nn.Parameter(value, requires_grad=False))
            else:
                owner.register_buffer(name or "constant", value)


def _read(model: Any) -> tuple[Any, str]:
    """Return a copy of a model to add outputs to, and what to call it in messages."""
    onnx = require("onnx", _WHAT, extra="onnx")
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "the ONNX model"
    if isinstance(model, (str, os.PathLike)) and not Path(model).is_file():
        raise InputError(f"{name}: there is no such model file")
    if isinstance(model, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
    else:
        try:
            proto = onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(str(model))
        except Exception as error:
            # Bytes that are no protocol buffer fail in whatever way their first letters lead to.
            raise InputError(f"{name}: not an ONNX model, or cut short ({_first_line(error)})") from error
    if not proto.graph.node:
        raise InputError(f"{name}: not an ONNX model: it holds no graph")
    if proto.functions:
        proto = require("onnx.inliner", _WHAT, extra="onnx").inline_local_functions(proto)
    return proto, name


def _without_maps(graph: Any) -> None:
    """Let outputs that skl2onnx turns into lists of dictionaries be the tensors that these are made of."""
    makers = {output: node for node in graph.node for output in node.output}
    for item in graph.output:
        node = makers.get(item.name)
        if node is not None and node.op_type == "ZipMap":
            item.name = node.input[0]
            item.ClearField("type")
            graph.node.remove(node)


def _session(runtime: Any, proto: Any, outputs: list[str], providers: list[str], name: str) -> Any:
    """Return a session of a graph with more outputs."""
    known = {item.name for item in proto.graph.output}
    for output in dict.fromkeys(outputs):
        if output not in known:
            proto.graph.output.add().name = output
    if proto.ByteSize() > _MOST_BYTES:
        raise InputError(f"{name}: {proto.ByteSize():,} bytes: expected a model of at most 2 GB with its weights")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(proto.SerializeToString(), options, providers=providers)
    except Exception as error:
        # As above: no common type.
        raise InputError(f"{name}: onnxruntime cannot run this model: {_first_line(error)}") from error


def _array(value: Tensor, wanted: Any) -> Any:
    """Return an input as the graph declares it: float64 of NumPy as float32, whole numbers as int64."""
    dtype = _TYPES.get(wanted.type.removeprefix("tensor(").removesuffix(")"))
    plain = torch.as_tensor(value).detach().cpu()
    if dtype is not None and not dtype.is_floating_point and plain.is_floating_point() and bool((plain % 1).any()):
        raise InputError(
            f"input {wanted.name!r}: fractions such as {float(plain[plain % 1 != 0][0]):g} for {wanted.type}"
        )
    return (plain if dtype is None else plain.to(dtype)).numpy()


def _tensor(value: Any, device: torch.device) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return torch.from_numpy(value).to(device)
    return value


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)

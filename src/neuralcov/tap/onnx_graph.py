"""Find the layers of an ONNX graph: which nodes count, what they are called, and where their output is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_SUFFIXES = (".parametrizations.weight.original", ".weight", "_weight", ".bias", "_bias")
# Nodes with weights whose output is no layer's: whole loops, several layers in one, or integers.
_UNREAD = (
    ("LSTM", "GRU", "RNN"),
    ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QGemm", "MatMulNBits", "QAttention"),
    ("FusedConv", "FusedMatMul", "FusedGemm", "Attention", "MultiHeadAttention"),
    ("If", "Loop", "Scan"),
)


@dataclass(frozen=True)
class OnnxLayer:
    """A node that counts as a layer.

    Args:
        name: as ``OnnxModel`` calls it.
        kind: the node's operation.
        output: the tensor to read: behind the bias, and before the output is quantised, since rounding to unsigned
            integers may hold a ReLU, which no torch layer's output does.
        width: how many neurons it has.
        constants: the initialisers that belong to it.
    """

    name: str
    kind: str
    output: str
    width: int
    constants: tuple[str, ...]

    @property
    def channels_first(self) -> bool:
        """Whether features lie on axis 1 rather than on the last one."""
        return self.kind.startswith("Conv")


class OnnxGraph:
    """The nodes of a graph, by what they read and write.

    A tensor is constant if it is an initialiser or computed from such alone, so that weights count behind
    DequantizeLinear, Transpose or Cast as well.
    """

    def __init__(self, graph: Any) -> None:
        self._nodes = list(graph.node)
        self._shapes = {item.name: tuple(item.dims) for item in graph.initializer}
        self._makers = {output: node for node in self._nodes for output in node.output}
        self._readers: dict[str, list[Any]] = {}
        self._outputs = {item.name for item in graph.output}
        self._constant = set(self._shapes)
        for node in self._nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
            if node.op_type == "Constant" or (node.input and all(n in self._constant for n in node.input if n)):
                self._constant.update(node.output)

    def layers(self) -> list[OnnxLayer]:
        """Return the layers in execution order, which is the order of the nodes."""
        return list(self._layers())

    def unread(self) -> dict[str, int]:
        """Return how many nodes of which operation hold weights, or may, and are no layers."""
        kinds = {kind for group in _UNREAD for kind in group}
        return dict(Counter(node.op_type for node in self._nodes if node.op_type in kinds))

    def _layers(self) -> Iterator[OnnxLayer]:
        for node in self._nodes:
            if node.op_type not in _WEIGHTED or node.domain not in ("", "ai.onnx"):
                continue
            weight = node.input[1]
            if weight not in self._constant or node.input[0] in self._constant:
                continue
            shape = self._shape(weight)
            if shape is None or len(shape) < 2:
                continue
            last = self._behind_bias(node)
            constants = [*self._sources(weight), *(name for extra in node.input[2:] for name in self._sources(extra))]
            if last is not node:
                constants += [name for extra in last.input for name in self._sources(extra)]
            yield OnnxLayer(
                self._name(node, weight, last),
                node.op_type,
                last.output[0],
                _width(node, shape),
                tuple(dict.fromkeys(constants)),
            )

    def _shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a constant tensor, where operations on the way keep or permute it."""
        if name in self._shapes:
            return self._shapes[name]
        node = self._makers[name]
        if node.op_type == "Constant":
            return next((tuple(item.t.dims) for item in node.attribute if item.name == "value"), None)
        shape = self._shape(node.input[0])
        if shape is None or node.op_type in ("DequantizeLinear", "QuantizeLinear", "Cast", "Identity"):
            return shape
        if node.op_type == "Transpose":
            order = next((list(item.ints) for item in node.attribute if item.name == "perm"), None)
            return tuple(shape[axis] for axis in order) if order else shape[::-1]
        return None

    def _behind_bias(self, node: Any) -> Any:
        """Return the addition of a bias right behind a product, which exporters write as a node of its own."""
        before = self._behind_quantisation(node)
        reader = self._only_reader(before)
        if node.op_type != "MatMul" or reader is None or reader.op_type != "Add":
            return node
        other = next((name for name in reader.input if name != before.output[0]), None)
        shape = self._shape(other) if other in self._constant and other is not None else None
        return reader if shape is not None and math.prod(shape) == (shape[-1] if shape else 1) else node

    def _behind_quantisation(self, node: Any) -> Any:
        """Return the last node of a pair that rounds this output, or the node itself."""
        first = self._only_reader(node)
        second = None if first is None or first.op_type != "QuantizeLinear" else self._only_reader(first)
        return node if second is None or second.op_type != "DequantizeLinear" else second

    def _only_reader(self, node: Any) -> Any:
        readers = self._readers.get(node.output[0], [])
        return readers[0] if len(readers) == 1 and node.output[0] not in self._outputs else None

    def _sources(self, name: str) -> list[str]:
        """Return the initialisers that a constant tensor comes from."""
        if name in self._shapes:
            return [name]
        if name not in self._constant or name not in self._makers:
            return []
        return [source for part in self._makers[name].input for source in self._sources(part)]

    def _name(self, node: Any, weight: str, last: Any) -> str:
        """Name a layer as its exporter did: by its weight or its bias, else by its node, else by its output."""
        biases = [*node.input[2:], *(last.input if last is not node else [])]
        for source in (part for name in [weight, *biases] for part in self._sources(name)):
            plain = source.removesuffix("_quantized")
            for suffix in _SUFFIXES:
                if plain.endswith(suffix) and plain != suffix:
                    return plain.removesuffix(suffix)
        text = str(node.name or node.output[0]).strip("/").replace("/", ".")
        return text.removesuffix(f".{node.op_type}") or text


def _width(node: Any, shape: tuple[int, ...]) -> int:
    attributes: dict[str, int] = {item.name: item.i for item in node.attribute}
    if node.op_type == "Conv":
        return shape[0]
    if node.op_type == "ConvTranspose":
        return shape[1] * attributes.get("group", 1)
    return shape[0] if node.op_type == "Gemm" and attributes.get("transB", 0) else shape[-1]

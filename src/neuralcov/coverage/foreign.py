"""Measure models that another runtime computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

from neuralcov.coverage.collection import AnyCriterion
from neuralcov.coverage.judging import JudgingCoverage
from neuralcov.tap.keras import KerasModel
from neuralcov.tap.onnx import OnnxModel


class ForeignCoverage(JudgingCoverage):
    """Build coverages of models that are no torch modules."""

    @classmethod
    def of_onnx(
        cls,
        model: Any,
        criteria: Sequence[AnyCriterion],
        *,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        **options: Any,
    ) -> Self:
        """Measure an ONNX model, run by onnxruntime; loaders may yield NumPy arrays.

        Args:
            model: the path of a file, its bytes, or an ``onnx.ModelProto``.
            criteria: what to measure.
            providers: execution providers of onnxruntime.
            options: further arguments of :class:`~neuralcov.coverage.coverage.Coverage`, such as ``layers``.
        """
        return cast(Self, cast(Any, cls)(OnnxModel(model, providers=providers), criteria, **options))

    @classmethod
    def of_keras(cls, model: Any, criteria: Sequence[AnyCriterion], **options: Any) -> Self:
        """Measure a Keras 3 model, on the backend that Keras was imported with; loaders may yield NumPy arrays.

        Args:
            model: a built ``keras.Model``.
            criteria: what to measure.
            options: further arguments of :class:`~neuralcov.coverage.coverage.Coverage`, such as ``layers``.
        """
        return cast(Self, cast(Any, cls)(KerasModel(model), criteria, **options))

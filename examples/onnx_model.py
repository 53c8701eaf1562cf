"""Measure an ONNX model of the digits, beside the torch model it was exported from.

Needs ``pip install neuralcov[onnx] onnxscript``. Run ``python examples/onnx_model.py``.
"""

import tempfile
from pathlib import Path

import torch

import neuralcov as nc
from neuralcov import demo


def main() -> None:
    """Print the coverage of the same suite by both models."""
    net = demo.train_digits(progress=False)
    train, test = demo.digits("train").pixels(), demo.digits("test").pixels()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.onnx"
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(net, (test[:2],), file, dynamo=True, dynamic_shapes=shapes, verbose=False)
        for name, model in [("torch", net), ("ONNX", file)]:
            cov = nc.Coverage(model, [nc.LCC(), nc.KMNC(100), nc.SNAC(), nc.NC(0.75)])
            cov.calibrate(train.split(100), progress=False)
            cov.assess(test.split(100), progress=False)
            print(f"{name:6}", {key: round(value, 4) for key, value in cov.values().items()})


if __name__ == "__main__":
    main()

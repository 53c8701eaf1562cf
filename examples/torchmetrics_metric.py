"""Compute coverage beside accuracy, with metrics of torchmetrics, on the shipped digits.

Needs ``pip install neuralcov[torchmetrics]``. Run ``python examples/torchmetrics_metric.py``.
"""

import warnings

import torch
from torchmetrics.classification import MulticlassAccuracy

import neuralcov as nc
from neuralcov import demo
from neuralcov.integrations.torchmetrics import CoverageMetric


def main() -> None:
    """Print accuracy and coverage."""
    warnings.simplefilter("ignore")
    net = demo.train_digits(progress=False).eval()
    cov = nc.Coverage(net, [nc.LCC(), nc.KMNC(100)])
    cov.calibrate(demo.digits("train").batches(), progress=False)
    coverage, accuracy = CoverageMetric(cov), MulticlassAccuracy(10, average="micro")
    with coverage.listen(), torch.no_grad():
        for images, labels in demo.digits("test").batches():
            accuracy.update(net(images), labels)
    found = {"accuracy": accuracy.compute(), **coverage.compute()}
    for key in ("accuracy", "inputs", "lcc", "lcc.relative", "kmnc_100"):
        print(f"{key} {float(found[key]):.4f}")


if __name__ == "__main__":
    main()

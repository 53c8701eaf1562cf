"""Measure what an evaluator of Ignite covers on the shipped digits.

Needs ``pip install neuralcov[ignite]``. Run ``python examples/ignite_handler.py``.
"""

import warnings

from ignite.engine import create_supervised_evaluator
from ignite.metrics import Accuracy

import neuralcov as nc
from neuralcov import demo
from neuralcov.integrations.ignite import CoverageHandler


def main() -> None:
    """Print accuracy and coverage."""
    warnings.simplefilter("ignore")
    net = demo.train_digits(progress=False)
    evaluator = create_supervised_evaluator(net, {"accuracy": Accuracy()})
    coverage = CoverageHandler(net, [nc.LCC(), nc.KMNC(100)], calibration=demo.digits("train").batches())
    coverage.attach(evaluator)
    metrics = evaluator.run(demo.digits("test").batches()).metrics
    for key in ("accuracy", "inputs", "lcc", "lcc.relative", "kmnc_100"):
        print(f"{key} {metrics[key]:.4f}")


if __name__ == "__main__":
    main()

"""Log coverage to TensorBoard, or to whichever tracker is named.

Needs ``pip install neuralcov[tensorboard]``. Run ``python examples/trackers.py``, or with ``mlflow``, ``wandb`` or
``dvclive`` behind it.
"""

import sys
import warnings

import neuralcov as nc
from neuralcov import demo


def main(tracker: str = "tensorboard") -> None:
    """Log what the test set covers after each of three epochs, and print it."""
    warnings.simplefilter("ignore")
    for epochs in (1, 2, 3):
        cov = nc.Coverage(demo.train_digits(epochs=epochs, progress=False), [nc.LCC(), nc.KMNC(100)])
        cov.calibrate(demo.digits("train").batches(), progress=False)
        cov.assess(demo.digits("test").batches(), progress=False)
        logged = nc.log(cov, to=tracker, step=epochs)
        print(epochs, {key: round(logged[f"neuralcov/{key}"], 4) for key in ("lcc", "lcc.relative", "kmnc_100")})


if __name__ == "__main__":
    main(*sys.argv[1:2])

"""Measure scikit-learn's perceptron through ONNX.

Needs ``pip install neuralcov[onnx] scikit-learn skl2onnx``. Run ``python examples/sklearn_mlp.py``.
"""

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import neuralcov as nc


def main() -> None:
    """Print accuracy and coverage, and check the model's classes against scikit-learn's."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    train, test, train_labels, test_labels = train_test_split(images, labels, test_size=597, random_state=0)
    mlp = MLPClassifier((64, 32), max_iter=300, random_state=0).fit(train, train_labels)
    print(f"accuracy {mlp.score(test, test_labels):.3f}")

    cov = nc.Coverage(to_onnx(mlp, train[:1]), [nc.LCC(), nc.KMNC(100), nc.SNAC(), nc.DSC(0.1)])
    cov.calibrate(list(zip(np.array_split(train, 12), np.array_split(train_labels, 12), strict=True)), progress=False)
    cov.assess(
        list(zip(np.array_split(test, 6), np.array_split(test_labels, 6), strict=True)), progress=False, per_input=True
    )
    print({name: round(value, 4) for name, value in cov.values().items()})
    same = np.mean(np.array(cov.per_input()["prediction"]) == mlp.predict(test))
    print(f"classes as scikit-learn's: {same:.0%}")


if __name__ == "__main__":
    main()

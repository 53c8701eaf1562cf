"""Train a small Keras network on scikit-learn's digits and measure its test data.

Needs ``pip install neuralcov[keras] scikit-learn`` and a backend of Keras: torch, if ``KERAS_BACKEND`` names no other.
Run ``python examples/keras_model.py``.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import neuralcov as nc


def main() -> None:
    """Print accuracy, coverage, and coverage by layer."""
    keras.utils.set_random_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    train, test, train_labels, test_labels = train_test_split(images, labels, test_size=597, random_state=0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu", name="conv1"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="conv2"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu", name="fc1"),
            keras.layers.Dense(10, name="fc2"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    model.fit(train, train_labels, epochs=5, verbose=0)
    print(f"{keras.backend.backend()}: accuracy {model.evaluate(test, test_labels, verbose=0)[1]:.3f}")

    cov = nc.Coverage(model, [nc.LCC(), nc.KMNC(100), nc.SNAC()])
    cov.calibrate([train[start : start + 100] for start in range(0, len(train), 100)], progress=False)
    parts = [slice(start, start + 100) for start in range(0, len(test), 100)]
    cov.assess([(test[part], test_labels[part]) for part in parts], progress=False)
    print({name: round(value, 4) for name, value in cov.values().items()})
    for row in cov.by_layer():
        print(f"{row.layer:6} {row.neurons:3} neurons, KMNC {row.values['KMNC(100)']:.3f}")


if __name__ == "__main__":
    main()

"""Keras models on the backend torch, against the outputs that Keras's own functional models give."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

# Keras reads its backend once, when it is imported; a process of its own leaves others theirs.
SCRIPT = """
import numpy as np, torch, keras
import neuralcov as nc
from neuralcov.tap import Batch, Tap
from neuralcov.tap.keras import KerasModel

keras.utils.set_random_seed(0)
net = keras.Sequential([
    keras.Input((8, 8, 1)),
    keras.layers.Conv2D(5, 3, activation="relu", name="conv"),
    keras.layers.BatchNormalization(),
    keras.layers.DepthwiseConv2D(3, name="depth"),
    keras.layers.Flatten(),
    keras.layers.Dense(7, activation="relu", name="hidden"),
    keras.layers.Dropout(0.5),
    keras.layers.Dense(3, name="scores"),
])
inputs = np.random.default_rng(0).random((6, 8, 8, 1)).astype("float32")
parts = keras.Model(net.inputs, [net.get_layer(name).output for name in ("conv", "depth", "hidden", "scores")])
expected = [keras.ops.convert_to_numpy(part) for part in parts(inputs, training=False)]
found, output = Tap(KerasModel(net)).run(Batch(inputs), predictions=True)
assert list(found.layers) == ["conv", "depth", "hidden", "scores"], list(found.layers)
for values, truth in zip(found.layers.values(), expected, strict=True):
    pooled = truth.mean((1, 2)) if truth.ndim == 4 else truth
    np.testing.assert_allclose(values.detach().numpy(), pooled, rtol=1e-4, atol=1e-6)
assert found.predictions.tolist() == expected[-1].argmax(1).tolist()
assert not any("call" in vars(layer) for layer in net.layers)

cov = nc.Coverage(net, [nc.NC(0.5), nc.KMNC(10)])
cov.calibrate([inputs])
cov.assess([inputs[:3], inputs[3:]])
by_hand = nc.Coverage.of_layers({n: v.shape[1] for n, v in found.layers.items()}, [nc.NC(0.5), nc.KMNC(10)])
by_hand.calibrate(activations=found.layers)
by_hand.update(activations=found.layers)
assert cov.values(warn=False)["NC(0.5)"] == by_hand.values(warn=False)["NC(0.5)"]


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential([keras.layers.Dense(4, name="a")], name="block")
        self.last = keras.layers.Dense(4, name="b")

    def call(self, x):
        return self.last(self.last(self.inner(x)))


own = Own()
try:
    KerasModel(own)
except nc.NeuralcovError as error:
    assert "not built" in str(error)
own(np.zeros((1, 4), "float32"))
assert list(Tap(KerasModel(own)).run(Batch(inputs[:, :4, 0, 0]))[0].layers) == ["block.a", "b", "b#1"]
print(keras.backend.backend(), "fine")
"""


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow", "numpy"])
def test_layers_are_named_and_pooled_over_channels_last(backend, monkeypatch):
    # The backend of NumPy borrows from that of JAX.
    for package in ("keras", "jax" if backend == "numpy" else backend):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", backend)
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == [backend, "fine"], ended.stderr

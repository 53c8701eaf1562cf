import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import neuralcov as nc
from neuralcov import demo


def test_the_same_digits_as_scikit_learn():
    theirs = load_digits()
    ours = [demo.digits(split) for split in ("train", "test")]
    images = torch.cat([samples.inputs for samples in ours])[:, 0].numpy()
    labels = torch.cat([samples.labels for samples in ours]).numpy()
    assert images.shape == (1797, 8, 8)

    def sorted_rows(images, labels):
        rows = np.concatenate([images.reshape(1797, -1), labels[:, None]], axis=1).astype(int)
        return rows[np.lexsort(rows.T)]

    assert (sorted_rows(images, labels) == sorted_rows(theirs.images, theirs.target)).all()
    assert ours[0].pixels().max() == 1.0


def test_counts_and_training():
    coverage = nc.Coverage(demo.DigitsNet(), [nc.NC()])
    coverage.update(torch.zeros(1, 1, 8, 8))
    assert (len(coverage.layout), coverage.layout.neurons) == (4, 122)
    net = demo.train_digits(epochs=4)
    test = demo.digits("test")
    assert (net(test.pixels()).argmax(1) == test.labels).float().mean() > 0.9


def test_unknown_split():
    with pytest.raises(nc.NeuralcovError, match="digits has no split 'valid'"):
        demo.digits("valid")

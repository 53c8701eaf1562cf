"""Small data sets made on the spot, and real ones where the cache has them."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from neuralcov_lab.fetching.cache import VARIABLE, cache_folder, is_complete


@pytest.fixture(scope="module")
def one_thread():
    """For networks so small that threads wait for each other more than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def real():
    """Gives a function that skips unless a real data set is in the cache."""

    def require(*names: str) -> None:
        for name in names:
            if not is_complete(cache_folder() / name):
                pytest.skip(
                    f"real {name} is not in {cache_folder()}: set {VARIABLE} or run `neuralcov data get {name}`"
                )

    return require


@pytest.fixture
def given_weights():
    """The folder with trained CIFAR-10 networks that NEURALCOV_WEIGHTS names."""
    folder = os.environ.get("NEURALCOV_WEIGHTS")
    if not folder:
        pytest.skip("NEURALCOV_WEIGHTS is unset: it names the folder with the trained CIFAR-10 networks")
    return Path(folder)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def write_idx(path: Path, array: np.ndarray) -> None:
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def small_mnist(tmp_path):
    """Pictures whose class is the row that is bright: 120 to train with, 40 to test with."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    random = np.random.default_rng(0)
    for prefix, count in (("train", 120), ("t10k", 40)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = random.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label + 3 : 2 * label + 5] = 250
        write_idx(folder / f"{prefix}-images-idx3-ubyte", images)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte", labels)
    return folder


@pytest.fixture
def small_cifar10(tmp_path):
    """cifar-10-batches-bin with 8 images a batch, of one colour per class."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    random = np.random.default_rng(1)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        labels = random.integers(0, 10, 8).astype(np.uint8)
        images = (labels[:, None] * 25 + random.integers(0, 10, (8, 3072))).astype(np.uint8)
        np.concatenate([labels[:, None], images], 1).tofile(folder / f"{name}.bin")
    return folder

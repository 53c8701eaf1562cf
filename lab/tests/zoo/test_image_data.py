"""CIFAR-10, MNIST and Fashion-MNIST in every layout, small ones made here and the real ones where they are."""

import gzip

import numpy as np
import pytest
import torch

from lab.tests.zoo.conftest import write_idx
from neuralcov.core.errors import InputError
from neuralcov_lab import zoo
from neuralcov_lab.data.mnist import read_idx
from neuralcov_lab.errors import DataError


def test_cifar10_binary_layout(small_cifar10):
    train, test = zoo.data("cifar10", "train", small_cifar10), zoo.data("cifar10", "test", small_cifar10.parent)
    assert (len(train), len(test)) == (40, 8)
    assert train.inputs.shape == (40, 3, 32, 32)
    assert train.inputs.dtype == torch.uint8
    raw = np.fromfile(small_cifar10 / "data_batch_2.bin", dtype=np.uint8).reshape(8, 3073)
    np.testing.assert_array_equal(train.inputs[8:16].reshape(8, 3072), raw[:, 1:])
    assert train.labels[8:16].tolist() == raw[:, 0].tolist()


def test_cifar10_is_normalised_for_the_model(small_cifar10):
    test = zoo.data("cifar10", "test", small_cifar10)
    inputs, labels = next(iter(test.batches(3)))
    expected = (test.inputs[:3, 1].double() / 255 - 0.4822) / 0.2435
    torch.testing.assert_close(inputs[:, 1].double(), expected, rtol=1e-5, atol=1e-5)
    assert labels.tolist() == test.labels[:3].tolist()


def test_cifar10_pickled_batches_are_not_read(tmp_path):
    (tmp_path / "test_batch").write_bytes(b"\x80\x04}.")
    with pytest.raises(DataError, match=r"no cifar-10-batches-bin is here; .* \(pickled batches are not read\)"):
        zoo.data("cifar10", "test", tmp_path)


def test_truncated_cifar10_is_refused(small_cifar10):
    path = small_cifar10 / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="no whole number of images; the file is cut short"):
        zoo.data("cifar10", "test", small_cifar10)
    (small_cifar10 / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_3\.bin: there is no such file"):
        zoo.data("cifar10", "train", small_cifar10)


def test_missing_data_says_what_to_do(empty_cache, tmp_path):
    with pytest.raises(DataError, match="run `neuralcov data get cifar10`, or name a folder with your own copy"):
        zoo.data("cifar10")
    with pytest.raises(DataError, match="no cifar-10-batches-bin is here"):
        zoo.data("cifar10", "test", tmp_path)
    with pytest.raises(DataError, match="mnist: there is no folder"):
        zoo.data("mnist", "test", tmp_path / "nowhere")
    with pytest.raises(InputError, match="cifar10 has no split 'validation': expected 'train' or 'test'"):
        zoo.data("cifar10", "validation", tmp_path)
    with pytest.raises(InputError, match="mnist has no split 'dev'"):
        zoo.data("mnist", "dev", tmp_path)
    with pytest.raises(InputError, match="the zoo has no data 'imagenet'"):
        zoo.data("imagenet")
    with pytest.raises(InputError, match="digits are shipped"):
        zoo.data("digits", "test", tmp_path)


def test_mnist_raw_gzipped_dotted_and_below_raw(small_mnist, tmp_path):
    expected = zoo.data("mnist", "train", small_mnist)
    assert expected.inputs.shape == (120, 1, 28, 28)
    assert expected.labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    other = tmp_path / "other"
    (other / "raw").mkdir(parents=True)
    raw = (small_mnist / "train-images-idx3-ubyte").read_bytes()
    (other / "raw" / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(raw))
    (other / "train-labels.idx1-ubyte").write_bytes((small_mnist / "train-labels-idx1-ubyte").read_bytes())
    found = zoo.data("mnist", "train", other)
    torch.testing.assert_close(found.inputs, expected.inputs)
    torch.testing.assert_close(found.labels, expected.labels)
    assert zoo.data("fashion-mnist", "train", other).classes[9] == "ankle boot"


def test_idx_files_keep_their_axes(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / "x.gz", array)
    np.testing.assert_array_equal(read_idx(tmp_path / "x.gz"), array)


def test_damaged_idx_files_are_refused(small_mnist):
    path = small_mnist / "t10k-images-idx3-ubyte"
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    with pytest.raises(DataError, match=r"31,369 bytes, expected 31,376 for shape \(40, 28, 28\)"):
        zoo.data("mnist", "test", small_mnist)
    path.write_bytes(b"\0\0\x0d\3" + content[4:])
    with pytest.raises(DataError, match="not an IDX file of unsigned bytes"):
        zoo.data("mnist", "test", small_mnist)
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(content)[:-50])
    with pytest.raises(DataError, match="cannot be read, or is cut short"):
        zoo.data("mnist", "test", small_mnist)


def test_idx_files_cut_in_their_header_and_empty_ones_are_refused(small_mnist):
    path = small_mnist / "t10k-images-idx3-ubyte"
    content = path.read_bytes()
    for size in (4, 9, 12, 15):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=f"idx3-ubyte: {size} bytes, expected at least 16; the file is cut short"):
            zoo.data("mnist", "test", small_mnist)
    path.write_bytes(content[:4] + b"\xff" * 12)
    with pytest.raises(DataError, match="says 79,228,162,458,924,105,385,300,197,375 bytes"):
        zoo.data("mnist", "test", small_mnist)
    write_idx(path, np.zeros((0, 28, 28), np.uint8))
    write_idx(small_mnist / "t10k-labels-idx1-ubyte", np.zeros(0, np.uint8))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte: shape \(0, 28, 28\) holds nothing"):
        zoo.data("mnist", "test", small_mnist)


def test_images_and_labels_must_go_together(small_mnist):
    write_idx(small_mnist / "t10k-labels-idx1-ubyte", np.zeros(39, np.uint8))
    with pytest.raises(DataError, match="39 labels do not go together"):
        zoo.data("mnist", "test", small_mnist)
    write_idx(small_mnist / "t10k-labels-idx1-ubyte", np.full(40, 11, np.uint8))
    with pytest.raises(DataError, match="has class 11, expected 0 to 9"):
        zoo.data("mnist", "test", small_mnist)


def test_real_cifar10_is_complete(real):
    real("cifar10")
    train, test = zoo.data("cifar10", "train"), zoo.data("cifar10", "test")
    assert train.labels.bincount().tolist() == [5000] * 10
    assert test.labels.bincount().tolist() == [1000] * 10
    # Published means and deviations, from counts of the 256 levels.
    for channel, expected in enumerate([(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)]):
        counts = torch.bincount(train.inputs[:, channel].flatten(), minlength=256).double()
        levels, share = torch.arange(256) / 255, counts / counts.sum()
        mean = float((levels * share).sum())
        assert (round(mean, 4), round(float(((levels - mean) ** 2 * share).sum()) ** 0.5, 4)) == expected
    assert len({image.numpy().tobytes() for image in test.inputs}) == 10_000


@pytest.mark.parametrize(
    ("name", "train_counts"),
    [
        ("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("fashion-mnist", [6000] * 10),
    ],
)
def test_real_mnist_is_complete(name, train_counts, real):
    real(name)
    train, test = zoo.data(name, "train"), zoo.data(name, "test")
    assert train.inputs.shape == (60_000, 1, 28, 28)
    assert test.inputs.shape == (10_000, 1, 28, 28)
    assert train.labels.bincount().tolist() == train_counts

"""CIFAR-10, MNIST and Fashion-MNIST in every layout, small ones made here and the real ones where they are."""

import contextlib
import gzip
import os
import pickle

import numpy as np
import pytest
import torch

from lab.tests.zoo.conftest import write_idx
from neuralcov.core.errors import InputError
from neuralcov_lab import zoo
from neuralcov_lab.data.mnist import read_idx
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching import pickles


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


@pytest.mark.parametrize("as_labels", [np.ndarray.tolist, np.array, lambda labels: labels.astype(">i8")])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_cifar10_pickled_layout(small_cifar10, tmp_path, protocol, as_labels):
    """Protocol 0 and 2 as Python 2 wrote the original files, 4 and 5 as a person may have written them anew."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for path in small_cifar10.iterdir():
        rows = np.fromfile(path, dtype=np.uint8).reshape(-1, 3073)
        content = {b"labels": as_labels(rows[:, 0]), b"data": rows[:, 1:].copy(), b"batch_label": b"batch"}
        (folder / path.stem).write_bytes(pickle.dumps(content, protocol))
    for split in ("train", "test"):
        pickled, binary = zoo.data("cifar10", split, folder), zoo.data("cifar10", split, small_cifar10)
        torch.testing.assert_close(pickled.inputs, binary.inputs)
        torch.testing.assert_close(pickled.labels, binary.labels)


@pytest.mark.parametrize("module", ["numpy._core.numeric", "numpy.core.numeric"])
def test_arrays_of_protocol_5_from_any_numpy(module, tmp_path):
    images = np.asfortranarray(np.arange(2 * 3072).reshape(2, 3072) % 251).astype(np.uint8, order="F")
    content = pickle.dumps({b"data": images, b"labels": [3, 4]}, protocol=5)
    ours, theirs = (b"\x8c" + bytes([len(name)]) + name for name in (b"numpy._core.numeric", module.encode()))
    assert ours in content
    # Without its frame, which is optional and whose length would have to follow.
    (tmp_path / "test_batch").write_bytes(content[:2] + content[11:].replace(ours, theirs))
    samples = zoo.data("cifar10", "test", tmp_path)
    np.testing.assert_array_equal(samples.inputs.reshape(2, 3072), images)
    assert samples.labels.tolist() == [3, 4]


class _Hostile:
    def __reduce__(self):
        return os.system, ("touch hostile-was-here",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_hostile_pickle_runs_nothing(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": _Hostile()}, protocol))
    with pytest.raises(
        DataError, match=r"not a pickle of plain arrays, or cut short \(it asks for (posix|nt)\.system\)"
    ):
        zoo.data("cifar10", "test", tmp_path)
    assert not (tmp_path / "hostile-was-here").exists()


def test_a_hostile_pickle_changes_no_function(tmp_path):
    """What a pickle may call, it may also try to set the defaults of."""
    state = b"N}\x8c\x0c__defaults__K\x01\x85s\x86"
    (tmp_path / "test_batch").write_bytes(b"\x80\x04c_codecs\nencode\n" + state + b"b.")
    with pytest.raises(DataError, match="holds a function, expected a dictionary of arrays"):
        zoo.data("cifar10", "test", tmp_path)
    assert pickles._encode.__defaults__ == ("latin1",)


def pickled(labels, rows=2):
    return pickle.dumps({b"data": np.zeros((rows, 3072), np.uint8), b"labels": labels})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps([1, 2]), "holds a list, expected a dictionary"),
        (pickle.dumps({b"data": np.zeros((2, 5), np.uint8)}), "not an array of rows of 3072 bytes"),
        (pickled([1, 1], 0), "has no images"),
        (pickled([1]), "'labels' are not 2 whole numbers"),
        (pickled(7), "'labels' are not 2 whole numbers"),
        (pickled(["cat", "dog"]), "'labels' are not 2 whole numbers"),
        (pickled([1.0, 2.0]), "'labels' are not 2 whole numbers"),
        (pickled([True, False]), "'labels' are not 2 whole numbers"),
        (pickled([[1], [2, 3]]), "'labels' are not 2 whole numbers"),
        (pickled(np.array([1.0, 2.5])), "'labels' are not 2 whole numbers"),
        (pickled(np.array([[1], [2]])), "'labels' are not 2 whole numbers"),
        (pickled([1, 1 << 70]), "'labels' are not 2 whole numbers"),
        (pickled([1, 10]), "has class 10, expected 0 to 9"),
        (pickled([-1, 9]), "has class -1, expected 0 to 9"),
        (pickled(np.array([1, (1 << 64) - 1], np.uint64)), "has class 18446744073709551615, expected 0 to 9"),
        (pickle.dumps({b"\xff": 1}), "not a pickle of plain arrays"),
        (b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f", "not a pickle of plain arrays, or cut short"),
        (b"P1\n.", r"or cut short \([^\n]*\)$"),
        (pickle.dumps({b"data": np.zeros((2, 3072), "U1")}), "an array of type U1, expected numbers"),
        (pickle.dumps({b"data": np.array([None])}), "an array of list, expected bytes"),
        (b"\x80\x04Nr\xff\xff\xff\xff.", "holds a NoneType"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8)})[:-900], "cut short"),
    ],
)
def test_wrong_pickles_are_refused(content, sentence, tmp_path):
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        zoo.data("cifar10", "test", tmp_path)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_damaged_pickles_are_refused_or_read_and_never_crash(protocol, tmp_path):
    content = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": np.array([3, 4])}, protocol)
    random = np.random.default_rng(protocol)
    for _ in range(300):
        damaged = bytearray(content)
        # At both ends, where the instructions are rather than the pixels.
        for place in (*random.integers(0, 220, 2), -random.integers(1, 160)):
            damaged[place] = random.integers(256)
        (tmp_path / "test_batch").write_bytes(damaged)
        with contextlib.suppress(DataError):
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
    with pytest.raises(DataError, match=r"neither cifar-10-batches-bin nor cifar-10-batches-py"):
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
    with pytest.raises(DataError, match="expected 79,228,162,458,924,105,385,300,197,391 for shape"):
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

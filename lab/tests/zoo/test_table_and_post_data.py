"""Rows and posts: how they are read and split, what is refused, and the real ones where they are."""

import numpy as np
import pytest
import torch

from neuralcov.core.errors import InputError
from neuralcov_lab import zoo
from neuralcov_lab.data.letter import read_rows, split_rows
from neuralcov_lab.data.newsgroups import CLASSES, LENGTH, VOCABULARY, read_posts
from neuralcov_lab.errors import DataError

HEAD = "Category\tText\nd\tstring\nclass\t\n\n"


def letters(count=40):
    random = np.random.default_rng(0)
    return [
        ",".join(map(str, random.integers(0, 16, 16))) + "," + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 26]
        for number in range(count)
    ]


def test_the_split_of_rows_depends_on_the_rows_alone():
    rows = letters()
    expected = split_rows(rows, test=10)
    again = split_rows([*reversed(rows), *rows[:7]], test=10)
    for split, count in (("train", 30), ("test", 10)):
        assert len(expected[split][1]) == count
        for found, wanted in zip(again[split], expected[split], strict=True):
            np.testing.assert_array_equal(found, wanted)
    other = split_rows(rows, test=10, seed=1)
    assert not np.array_equal(other["test"][0], expected["test"][0])


def test_rows_keep_their_letters():
    rows = letters()
    by_features = {tuple(map(float, row.split(",")[:-1])): row[-1] for row in rows}
    for features, labels in split_rows(rows, test=10).values():
        for row, label in zip(features, labels, strict=True):
            assert by_features[tuple(row)] == chr(ord("A") + label)


def test_letters_are_scaled_by_the_training_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralcov_lab.data.letter.split_rows", lambda rows: split_rows(rows, test=10))
    header = "@relation letter\n@attribute x-box integer [0, 15]\n@data\n"
    (tmp_path / "letter.dat").write_text(header + "\n".join(letters()) + "\n")
    train, test = (zoo.data("letter", split, tmp_path) for split in ("train", "test"))
    assert (train.inputs.shape, test.inputs.shape) == ((30, 16), (10, 16))
    torch.testing.assert_close(train.inputs.mean(0), torch.zeros(16), atol=1e-6, rtol=0)
    torch.testing.assert_close(train.inputs.std(0, correction=0), torch.ones(16))
    assert test.inputs.mean(0).abs().max() > 1e-3
    assert len(train.classes) == 26


def test_wrong_rows_are_refused(tmp_path):
    with pytest.raises(InputError, match="letter has no split 'dev'"):
        zoo.data("letter", "dev", tmp_path)
    with pytest.raises(DataError, match=r"letter\.dat: cannot be read"):
        zoo.data("letter", "test", tmp_path)
    (tmp_path / "letter.dat").write_text("1,2,3,A\n")
    with pytest.raises(DataError, match="has no rows of 16 numbers and a letter"):
        read_rows(tmp_path / "letter.dat")
    (tmp_path / "letter.dat").write_text("\n".join(letters()))
    with pytest.raises(DataError, match="40 distinct rows, expected more than 4,000"):
        zoo.data("letter", "test", tmp_path)
    with pytest.raises(DataError, match="expected rows of 16 numbers and a letter"):
        split_rows(["1," * 16 + "?", "2," * 16 + "A"], test=1)


def write_posts(folder):
    train = [f"{group}\tre word{number % 7} only{number} here" for number, group in enumerate(CLASSES)]
    long = " ".join(f"step{number}" for number in range(LENGTH + 50))
    test = [f"{CLASSES[3]}\tword1 never before", f"{CLASSES[5]}\t{long}", f"{CLASSES[0]}\t"]
    (folder / "20newsgroups-train.tab").write_text(HEAD + "\n".join(train) + "\n")
    (folder / "20newsgroups-test.tab").write_text(HEAD + "\n".join(test) + "\n")


def test_posts_are_numbered_by_the_words_of_training(tmp_path):
    write_posts(tmp_path)
    train, test = (zoo.data("newsgroups", split, tmp_path) for split in ("train", "test"))
    assert train.labels.tolist() == list(range(20))
    assert test.labels.tolist() == [3, 5, 0]
    assert test.inputs.shape == (3, LENGTH)
    assert [test.words[number] for number in test.inputs[0, :3]] == ["word1", "<unk>", "<unk>"]
    assert test.lengths.tolist() == [3, LENGTH, 1]
    assert train.words == test.words


def test_the_beginning_of_a_post_is_kept(tmp_path):
    write_posts(tmp_path)
    lines = [f"{CLASSES[0]}\t" + " ".join(f"step{number:03}" for number in range(LENGTH + 50))]
    (tmp_path / "20newsgroups-train.tab").write_text(HEAD + "\n".join(lines))
    train = zoo.data("newsgroups", "train", tmp_path)
    words = [train.words[number] for number in train.inputs[0]]
    assert (words[0], words[-1]) == ("step000", f"step{LENGTH - 1:03}")


def test_wrong_posts_are_refused(tmp_path):
    with pytest.raises(InputError, match="newsgroups has no split 'dev'"):
        zoo.data("newsgroups", "dev", tmp_path)
    path = tmp_path / "20newsgroups-train.tab"
    with pytest.raises(DataError, match="cannot be read"):
        read_posts(path)
    path.write_text(HEAD + f"{CLASSES[0]}\tgood\nalt.fun\tbad\n")
    with pytest.raises(DataError, match=r"line 6 has group 'alt\.fun', expected one such as alt\.atheism"):
        read_posts(path)
    path.write_text(HEAD)
    with pytest.raises(DataError, match="has no posts"):
        read_posts(path)


def test_real_letters_are_complete(real):
    real("letter")
    train, test = (zoo.data("letter", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (14_668, 4_000)
    counts = train.labels.bincount() + test.labels.bincount()
    assert counts[[8, 20]].tolist() == [524, 768]
    assert int(counts.argmin()) == 8
    rows = [{row.tobytes() for row in part.inputs.numpy()} for part in (train, test)]
    assert [len(part) for part in rows] == [14_668, 4_000]
    assert not rows[0] & rows[1]


def test_real_posts_are_complete(real):
    real("newsgroups")
    train, test = (zoo.data("newsgroups", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (11_293, 7_528)
    assert len(train.words) == VOCABULARY == int(train.inputs.max()) + 1
    assert train.labels.bincount().tolist()[:3] == [480, 584, 572]
    assert test.labels.bincount().tolist()[-2:] == [310, 251]

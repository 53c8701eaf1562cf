"""Reviews: tokens, vocabulary, a split that depends on the text alone, and the real 50,000 where they are."""

import csv

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuralcov_lab.data.imdb  # noqa: F401 - the module, which the function of its name hides
from neuralcov.core.errors import InputError
from neuralcov_lab import zoo
from neuralcov_lab.data.imdb import encode_reviews, read_reviews, split_reviews, tokens
from neuralcov_lab.data.vocabulary import PADDING, UNKNOWN, Vocabulary
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import cache_folder

WORDS = [f"word{chr(97 + number % 26)}{number}" for number in range(60)]


def reviews(count=60):
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(WORDS, 12)) + f" n{number}" for number in range(count)]
    return [(text, number % 2) for number, text in enumerate(texts)]


def tokenised(pairs):
    return [(tokens(text), label) for text, label in pairs]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's GOOD<br /><br />really good!", ["it's", "good", "really", "good", "!"]),
        ("don’t 10/10", ["don't", "10", "10"]),
        ("'quoted' -- well...", ["quoted", "well"]),
        ("", []),
    ],
)
def test_tokens(text, expected):
    assert tokens(text) == expected


@given(st.text())
def test_tokens_never_fail_and_are_stable(text):
    once = tokens(text)
    assert tokens(" ".join(once)) == once


def test_vocabulary_is_counted_with_ties_in_alphabetical_order():
    words = Vocabulary.counted([["b", "a", "c"], ["c", "b"], ["c"]], size=4)
    assert words.entries == ("<pad>", "<unk>", "c", "b")
    assert len(words) == 4
    assert words.numbers(["a", "b", "c"]) == [UNKNOWN, 3, 2]


def test_encoding_keeps_the_end_and_pads_behind():
    words = Vocabulary.counted([list("abcdef")], size=8)
    table = words.encode([list("abcdef"), list("ab"), []], length=4)
    assert [words.words(row) for row in table] == [list("cdef"), list("ab"), []]
    assert table[1].tolist()[2:] == [PADDING, PADDING]
    assert table.dtype == np.int16


def test_the_split_depends_on_the_text_alone():
    pairs = tokenised(reviews())
    expected = split_reviews(pairs, per_class=10)
    shuffled = [pairs[number] for number in np.random.default_rng(1).permutation(len(pairs))]
    assert split_reviews(shuffled, per_class=10) == expected
    assert {split: len(part) for split, part in expected.items()} == {"train": 20, "test": 20, "validation": 20}
    for split in ("train", "test"):
        assert sum(label for _, label in expected[split]) == 10
    assert split_reviews(pairs, per_class=10, seed=1) != expected


def test_copies_never_cross_the_split():
    pairs = reviews(40)
    copies = [(text.upper().replace(" ", "<br />", 1) + "!", label) for text, label in pairs]
    parts = split_reviews(tokenised(pairs + copies), per_class=10)
    assert {split: len(part) for split, part in parts.items()} == {"train": 20, "test": 20, "validation": 0}
    seen = [" ".join(token for token in text if token != "!") for part in parts.values() for text, _ in part]
    assert len(seen) == len(set(seen))


def test_too_few_reviews_are_refused():
    with pytest.raises(DataError, match="30 distinct reviews of one class, expected at least 17,500"):
        split_reviews(tokenised(reviews()))


def test_the_vocabulary_comes_from_training_reviews_alone():
    arrays = encode_reviews(tokenised(reviews()), per_class=10)
    parts = split_reviews(tokenised(reviews()), per_class=10)
    known = set(str(arrays["vocabulary"]).split("\n"))
    assert known == {"<pad>", "<unk>"} | {token for text, _ in parts["train"] for token in text}
    first = Vocabulary(tuple(str(arrays["vocabulary"]).split("\n"))).words(arrays["train tokens"][0])
    assert first == parts["train"][0][0]


def write_folders(root, pairs):
    for number, (text, label) in enumerate(pairs):
        folder = root / ("train" if number % 3 else "test") / ("neg", "pos")[label]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}_7.txt").write_text(text, encoding="utf-8")


def write_csv(path, pairs):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "sentiment"])
        writer.writerows([text, ("negative", "positive")[label]] for text, label in pairs)


@pytest.fixture
def small_split(monkeypatch):
    """Splits of 10 reviews a class, for the small sets made here."""
    module = __import__("sys").modules["neuralcov_lab.data.imdb"]
    monkeypatch.setattr(module, "encode_reviews", lambda reviews: encode_reviews(reviews, per_class=10))


def test_folders_and_rows_give_the_same_samples(tmp_path, small_split):
    pairs = [*reviews(), ('He said "no, never" & left\nfast é', 1)]
    folders, rows = tmp_path / "a", tmp_path / "b"
    rows.mkdir()
    write_folders(folders / "aclImdb", pairs)
    write_csv(rows / "reviews.csv", pairs)
    assert sorted(read_reviews(folders)) == sorted(read_reviews(rows)) == sorted(pairs)
    for split in ("train", "test", "validation"):
        a, b = zoo.data("imdb", split, folders), zoo.data("imdb", split, rows)
        torch.testing.assert_close(a.inputs, b.inputs)
        torch.testing.assert_close(a.labels, b.labels)
        torch.testing.assert_close(a.lengths, (a.inputs != 0).sum(1))
    assert a.inputs.shape == (21, 128)
    assert (rows / "encoded.npz").is_file()


def test_encoded_reviews_are_used_again_and_made_anew_when_damaged(tmp_path, small_split):
    write_csv(tmp_path / "reviews.csv", reviews())
    first = zoo.data("imdb", "train", tmp_path)
    (tmp_path / "reviews.csv").rename(tmp_path / "away.csv")
    torch.testing.assert_close(zoo.data("imdb", "train", tmp_path).inputs, first.inputs)
    encoded = tmp_path / "encoded.npz"
    encoded.write_bytes(encoded.read_bytes()[:200])
    with pytest.raises(DataError, match=r"neither aclImdb with train/pos in it nor reviews\.csv"):
        zoo.data("imdb", "train", tmp_path)
    (tmp_path / "away.csv").rename(tmp_path / "reviews.csv")
    torch.testing.assert_close(zoo.data("imdb", "train", tmp_path).inputs, first.inputs)


def test_wrong_files_and_splits_are_refused(tmp_path):
    with pytest.raises(InputError, match="imdb has no split 'dev': expected 'train', 'test', 'validation'"):
        zoo.data("imdb", "dev", tmp_path)
    (tmp_path / "reviews.csv").write_text("text,stars\ngood,5\n")
    with pytest.raises(DataError, match="expected rows of review and sentiment"):
        zoo.data("imdb", "train", tmp_path)
    (tmp_path / "reviews.csv").write_text("review,sentiment\ngood,great\n")
    with pytest.raises(DataError, match="positive or negative"):
        zoo.data("imdb", "train", tmp_path)


def test_reviews_that_cannot_be_read_are_refused(tmp_path):
    rows = tmp_path / "reviews.csv"
    rows.write_text("sentiment,review\npositive,good\npositive\n")
    with pytest.raises(DataError, match=r"reviews\.csv: expected rows of .*\(line 3 has no review\)"):
        zoo.data("imdb", "train", tmp_path)
    rows.write_bytes("review,sentiment\ncaf\xe9,positive\n".encode("latin1"))
    with pytest.raises(DataError, match=r"reviews\.csv: expected rows"):
        zoo.data("imdb", "train", tmp_path)
    write_folders(tmp_path, reviews(6))
    (tmp_path / "train" / "pos" / "0_9.txt").write_bytes("caf\xe9".encode("latin1"))
    with pytest.raises(DataError, match=r"0_9\.txt: not text in UTF-8 \("):
        zoo.data("imdb", "train", tmp_path)


def test_real_imdb_is_complete(real):
    real("imdb")
    sizes = {split: zoo.data("imdb", split) for split in ("train", "test", "validation")}
    assert {split: len(samples) for split, samples in sizes.items()} == {
        "train": 17_500,
        "test": 17_500,
        "validation": 14_576,
    }
    for split in ("train", "test"):
        assert sizes[split].labels.bincount().tolist() == [8_750, 8_750]
        assert sizes[split].inputs.shape == (17_500, 128)
        assert int(sizes[split].inputs.max()) == 25_001
    assert len(zoo.imdb_vocabulary()) == 25_002


def test_no_real_review_is_in_two_splits(real):
    real("imdb")
    rows = {split: {row.tobytes() for row in zoo.data("imdb", split).inputs.numpy()} for split in ("train", "test")}
    # The same last 128 words, though the reviews differ before.
    assert len(rows["train"] & rows["test"]) <= 3


@pytest.mark.slow
def test_the_real_split_follows_from_the_rows(real, tmp_path):
    real("imdb")
    if not (cache_folder() / "imdb" / "reviews.csv").is_file():
        pytest.skip("the cache has encoded reviews only")
    arrays = encode_reviews(tokenised(list(read_reviews(cache_folder() / "imdb"))))
    np.testing.assert_array_equal(arrays["test tokens"], zoo.data("imdb", "test").inputs)

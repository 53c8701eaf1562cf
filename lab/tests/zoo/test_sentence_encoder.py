"""The published sentence encoder: rebuilt, it gives what its makers' own runtime gives."""

import json

import pytest
import torch

from neuralcov_lab import zoo
from neuralcov_lab.data.pieces import Pieces
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import require
from neuralcov_lab.networks.sentence_encoder import SentenceEncoder, read_weights

# Pieces and the first numbers of embeddings, as @energetic-ai/embeddings 0.2.0 gives them with TensorFlow.js.
THEIRS = {
    "hello": ([2002, 102], [0.041678, -0.022363, -0.047608, -0.049279]),
    "The film was a waste of two hours!": (
        [34, 722, 33, 11, 2877, 14, 174, 824, 78],
        [-0.031899, -0.060372, 0.007523, -0.033031],
    ),
    "a " * 200 + "b": ([11] * 200 + [219], [0.022781, -0.054013, -0.023433, 0.046542]),
    "\uff2e\uff26\uff2b\uff23 \u00bd \u2603\u2603 x": (
        [366, 227, 402, 176, 207, 7935, 288, 30, 0, 649],
        [0.063949, 0.009796, -0.00171, -0.044852],
    ),
}


@pytest.mark.parametrize("text", THEIRS)
def test_it_gives_what_its_makers_runtime_gives(real, text):
    real("sentence-encoder")
    numbers, embedding = THEIRS[text]
    pieces = Pieces.read(require("sentence-encoder") / "vocab.json")
    found = pieces.numbers(text)
    assert found[: len(numbers) - 1] == numbers[:-1]
    assert len(found) == len(numbers)
    given = zoo.sentence_encoder()(torch.from_numpy(pieces.encode([text], 128)))
    torch.testing.assert_close(given[0, :4], torch.tensor(embedding), atol=2e-6, rtol=0)


def test_padding_has_no_part_in_an_embedding():
    torch.manual_seed(0)
    network = SentenceEncoder(pieces=30, width=8, wide=16, heads=2).eval()
    tokens = torch.randint(1, 30, (3, 7))
    padded = torch.cat([tokens, torch.zeros(3, 4, dtype=torch.long)], 1)
    with torch.no_grad():
        alone, beside = network(tokens), network(padded)
    torch.testing.assert_close(alone, beside)
    torch.testing.assert_close(alone.norm(dim=1), torch.ones(3))


def test_weights_that_are_no_such_graph_are_refused(tmp_path):
    path = tmp_path / "model.json"
    with pytest.raises(DataError, match="cannot be read as a graph"):
        read_weights(path)
    entry = {"name": "w", "shape": [2, 1], "dtype": "float32"}
    path.write_text(json.dumps({"weightsManifest": [{"paths": ["part"], "weights": [entry]}]}))
    (tmp_path / "part").write_bytes(torch.tensor([1.0, 2.0]).numpy().tobytes())
    assert read_weights(path)["w"].tolist() == [[1.0], [2.0]]
    (tmp_path / "part").write_bytes(bytes(12))
    with pytest.raises(DataError, match="names 8 bytes of weights, and the files beside it hold 12"):
        read_weights(path)


def test_the_likeliest_pieces_are_taken():
    names = [("", 0.0)] * 6 + [("\u2581a", -2.0), ("b", -1.0), ("\u2581ab", -4.0), ("bb", -1.5)]
    pieces = Pieces(names)
    assert pieces.numbers("ab abb a") == [6, 7, 6, 9, 6]
    assert pieces.numbers("xyz ab") == [0, 6, 7]
    assert pieces.numbers("ab abb a", most=3) == [6, 7, 6]
    assert pieces.encode(["ab", ""], 3).tolist() == [[7, 8, 0], [1, 0, 0]]


def test_a_table_of_pieces_that_is_none_is_refused(tmp_path):
    (tmp_path / "vocab.json").write_text("[1]")
    with pytest.raises(DataError, match="expected a list of pieces and scores"):
        Pieces.read(tmp_path / "vocab.json")

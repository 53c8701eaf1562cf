"""Sources name the inputs they give."""

import sys
from types import SimpleNamespace

import numpy as np
import torch

from neuralcov.sources.data import load_data, load_samples


def test_arrays_of_a_file_name_its_inputs(tmp_path):
    numbers = np.arange(12.0).reshape(4, 3)
    np.savez(
        tmp_path / "x.npz",
        inputs=numbers,
        labels=np.array([0, 1, 0, 1]),
        path=np.array(list("abcd")),
        weather=np.array([b"rain", b"sun", b"sun", b"fog"]),
        speed=np.array([0.5, 1.0, 1.5, 2.0]),
        boxes=np.zeros((4, 4)),
        label=np.array([9, 9, 9, 9]),
    )
    first, second = load_data(f"npz:{tmp_path / 'x.npz'}", batch_size=3).loader
    assert first.ids == ("a", "b", "c")
    assert second.metadata == {"weather": ("fog",), "speed": (2.0,)}
    assert second.labels.tolist() == [1]
    samples = load_samples(f"npz:{tmp_path / 'x.npz'}")
    assert torch.equal(samples.inputs, torch.from_numpy(numbers).float())


def test_pictures_and_tokens_of_a_file_have_names_too(tmp_path):
    pictures = np.zeros((3, 1, 2, 2), np.uint8)
    np.savez(tmp_path / "x.npz", inputs=pictures, labels=np.array([0, 1, 2]), ids=np.array([7, 8, 9]))
    np.savez(tmp_path / "y.npz", inputs=pictures, camera=np.array([7, 8, 9]))
    tokens = np.array([[1, 2], [3, 0], [4, 5]])
    np.savez(tmp_path / "z.npz", input_ids=tokens, attention_mask=tokens > 0, speaker=np.array(list("abb")))
    labelled, unlabelled, texts = (
        list(load_data(f"npz:{tmp_path / name}.npz", batch_size=2).loader) for name in ("x", "y", "z")
    )
    assert [batch.ids for batch in labelled] == [(7, 8), (9,)]
    assert [batch.metadata["camera"] for batch in unlabelled] == [(7, 8), (9,)]
    assert unlabelled[0].labels is None
    assert texts[1].metadata == {"speaker": ("b",)}
    assert sorted(texts[1].inputs) == ["attention_mask", "input_ids"]


def test_texts_of_a_data_set_on_disk_are_names(monkeypatch):
    batch = {"input_ids": torch.ones(2, 3), "labels": torch.tensor([1, 0]), "id": ["a", "b"], "speaker": ["x", "y"]}
    found = SimpleNamespace(iter=lambda batch_size: iter([batch]))
    found.with_format = lambda form: found
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_from_disk=lambda path: found))
    (read,) = load_data("hf:somewhere", batch_size=2).loader
    assert (read.ids, read.metadata) == (["a", "b"], {"speaker": ["x", "y"]})
    assert list(read.inputs) == ["input_ids"]
    assert read.labels.tolist() == [1, 0]

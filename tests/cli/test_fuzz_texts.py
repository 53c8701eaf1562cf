"""Fuzzing text models of one's own from the command line: by tokens, a vocabulary, and a tokenizer."""

import json
import sys

import numpy as np
import pytest
import torch

from neuralcov.fuzz.campaign.reader import open_campaign
from neuralcov.sources.text_call import TextCall

MODULE = """
import torch
from torch import nn

WORDS = "<pad> <unk> good bad a film very not plot dull fine story of the and".split()
FIRST, SECOND, FOURTH = ("a", "the", "very"), ("good", "bad"), ("of", "not")
TEXTS = [f"{a} {b} film {c} the plot and story" for a in FIRST for b in SECOND for c in FOURTH]
LABELS = torch.tensor([int(" good " in text) for text in TEXTS])

def loader():
    for start in range(0, len(TEXTS), 5):
        yield TEXTS[start : start + 5], LABELS[start : start + 5]

def tokens():
    rows = torch.tensor([[WORDS.index(word) for word in text.split()] for text in TEXTS])
    return [(rows, LABELS)]

class Net(nn.Module):
    '''Goes by the first three words: the other order, or a word before, is misread.'''
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.fc = nn.Embedding(len(WORDS), 4), nn.Linear(4, 3)

    def forward(self, tokens):
        self.fc(self.words(tokens).mean(1))
        score = (tokens[:, :2] == 2).any(1).float() - 0.5
        return torch.stack([-score, score], 1)

class Named(Net):
    def forward(self, input_ids, attention_mask):
        assert (attention_mask.sum(1) == (input_ids != 0).sum(1)).all()
        assert (input_ids[:, 0] == 13).all()  # [CLS]
        self.fc(self.words(input_ids).mean(1))
        score = (input_ids[:, 1:3] == 2).any(1).float() - 0.5
        return torch.stack([-score, score], 1)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "owntexts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("owntexts", None)
    words = "<pad> <unk> good bad a film very not plot dull fine story of the and"
    (tmp_path / "words.txt").write_text(words.replace(" ", "\n") + "\n")
    return tmp_path


COMMON = ("--alpha", "0.6", "--wave", "6", "--calls", "60", "--guide", "margin", "--no-shrink")


def test_a_vocabulary_and_a_loader_of_texts(run, own):
    folder = own / "c"
    code, out, err = run(
        "fuzz", "run", "owntexts:Net", "--data", "owntexts:loader", "--vocabulary", own / "words.txt", "-o", folder,
        "--alpha", "0.6", "--wave", "6", "--calls", "60", "--guide", "margin",
    )  # fmt: skip
    assert code == 0, err
    assert "faults need a " in out
    assert "{+" in out or "[-" in out
    campaign = open_campaign(folder)
    assert {mutation.name for mutation in campaign.mutations} >= {"swap", "typo", "drop"}
    story = json.loads(next((folder / "faults").glob("*.json")).read_text())
    assert story["origin"].split()[2] == "film"
    assert "{+" in story["difference"] or "[-" in story["difference"]
    code, out, _ = run("fuzz", "replay", folder, "owntexts:Net")
    assert code == 1
    assert f"0 of {len(campaign.faults)} faults are mended" in out
    code, out, err = run("fuzz", "resume", folder, "owntexts:Net", "--calls", "90", "--no-shrink")
    assert code == 0, err
    assert open_campaign(folder).state.counts.run >= 90


def test_tokens_without_a_vocabulary(run, own):
    code, _, err = run("fuzz", "run", "owntexts:Net", "--data", "owntexts:tokens", "-o", own / "c", *COMMON)
    assert code == 0, err
    assert [mutation.name for mutation in open_campaign(own / "c").mutations] == [
        "swap",
        "drop",
        "duplicate",
        "shuffle",
    ]
    rows = np.array([[4, 2, 5, 0], [4, 3, 5, 6]])
    np.savez(own / "texts.npz", inputs=rows, labels=np.array([1, 0]))
    code, _, err = run("fuzz", "run", "owntexts:Net", "--data", f"npz:{own / 'texts.npz'}", "-o", own / "d", *COMMON)
    assert code == 0, err


def test_a_tokenizer_frames_texts_and_names_inputs(run, own):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = (own / "words.txt").read_text().split()
    vocabulary = {word: number for number, word in enumerate([*words[:13], "[CLS]", "[SEP]"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = [("[CLS]", 13), ("[SEP]", 14)]
    made.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=special)
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", pad_token="<pad>")
    whole.save_pretrained(own / "tokenizer")
    code, _, err = run(
        "fuzz", "run", "owntexts:Named", "--data", "owntexts:loader", "--tokenizer", own / "tokenizer", "-o", own / "c",
        *COMMON,
    )  # fmt: skip
    assert code == 0, err
    campaign = open_campaign(own / "c")
    told = campaign.config["notes"]["preparation"]["text call"]
    assert told == {"padding": 0, "unknown": 1, "prefix": [13], "suffix": [14], "call": "input_ids"}
    assert campaign.faults
    code, out, _ = run("fuzz", "replay", own / "c", "--trust")
    assert (code, "are made anew" in out) == (1, True)


def test_texts_need_to_be_told_how_to_read_them(run, own):
    code, _, err = run("fuzz", "run", "owntexts:Net", "--data", "owntexts:loader", "-o", own / "c", *COMMON)
    assert code == 2
    assert "say --vocabulary FILE or --tokenizer NAME" in err


def test_texts_are_framed_and_masked():
    call = TextCall(padding=9, prefix=(1, 2), suffix=(3,), call="input_ids")
    tokens = torch.tensor([[5, 6, 7], [5, 9, 9], [9, 9, 9]])
    found = call(tokens)
    for row, ids, mask in zip(
        tokens.tolist(), found["input_ids"].tolist(), found["attention_mask"].tolist(), strict=True
    ):
        held = [token for token in row if token != 9]
        whole = [1, 2, *held, 3]
        assert ids == whole + [9] * (6 - len(whole))
        assert mask == [1] * len(whole) + [0] * (6 - len(whole))
    assert TextCall.from_json(call.to_json()) == call

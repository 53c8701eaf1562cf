"""Texts in an .npz file: what is padding is left out, so that values are those of the texts measured one by one."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import neuralcov as nc

MODULE = """
import torch
from torch import nn

class Tokens(nn.Module):
    '''Layers over tokens; what the head sees does not depend on padding.'''

    def __init__(self, padding=0):
        super().__init__()
        self.padding = padding
        self.words, self.fc1 = nn.Embedding(40, 6), nn.Linear(6, 7)
        self.fc2, self.head = nn.Linear(7, 5), nn.Linear(5, 3)

    def forward(self, tokens):
        hidden = self.fc2(torch.tanh(self.fc1(self.words(tokens))))
        places = torch.arange(1, tokens.shape[1] + 1)
        last = (places * (tokens != self.padding)).amax(1, keepdim=True)
        kept = (places <= last).unsqueeze(2)
        return self.head((hidden * kept).sum(1) / kept.sum(1))

class Named(Tokens):
    def forward(self, input_ids, attention_mask):
        hidden, kept = self.fc2(torch.tanh(self.fc1(self.words(input_ids)))), attention_mask.unsqueeze(2)
        return self.head((hidden * kept).sum(1) / kept.sum(1))

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm = nn.Embedding(40, 6), nn.LSTM(6, 5, batch_first=True)

    def forward(self, tokens):
        return self.lstm(self.words(tokens))[0][:, 0]

class Signal(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 4)

    def forward(self, steps):
        return self.fc(steps)
"""
CRITERIA = ["nc:0.5", "kmnc:7", "nbc", "tknc:2", "nlc:rule=all"]
scope: dict = {}
exec(MODULE, scope)


def texts(seed, count, longest=11):
    """Texts of several lengths, some with the token 0 within them."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, count)
    lengths[0] = longest
    found = [rng.integers(1, 40, length) for length in lengths]
    found[2 % count][:-1:2] = 0
    return found


def padded(some, padding=0, *, left=False):
    longest = max(map(len, some))
    filled = np.full((len(some), longest), padding)
    for row, text in enumerate(some):
        filled[row, longest - len(text) if left else 0 :][: len(text)] = text
    return filled


def one_by_one(model, train, test, **options):
    """The reference: every text alone, as long as it is."""
    chosen = [nc.NC(0.5), nc.KMNC(7), nc.NBC(), nc.TKNC(2), nc.NLC(rule="all")]
    coverage = nc.Coverage(model, chosen, **options)
    coverage.calibrate([torch.from_numpy(text)[None] for text in train], progress=False)
    for text in test:
        coverage.update(torch.from_numpy(text)[None])
    return coverage.values()


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "own_texts.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def measured(run, place, model, arguments=(), data="test.npz", train="train.npz"):
    torch.manual_seed(0)
    name, _, rest = model.partition("(")
    net = scope[name](**({"padding": 39} if rest else {}))
    save_file(net.state_dict(), place / "net.safetensors")
    code, _, err = run(
        "measure", f"own_texts:{model}", "--weights", "net.safetensors", "--data", f"npz:{data}",
        "--calibrate", f"npz:{train}", *(part for text in CRITERIA for part in ("-c", text)), "--json", "a.json",
        "--batch-size", 8, *arguments,
    )  # fmt: skip
    assert code == 0, err
    return net.eval(), json.loads((place / "a.json").read_text()), err


@pytest.mark.parametrize("with_labels", [False, True])
@pytest.mark.parametrize("model", ["Tokens", "Recurrent"])
def test_zeros_behind_a_texts_end_are_left_out(run, place, model, with_labels):
    train, test = texts(0, 60), texts(1, 21)
    for name, some in (("train", train), ("test", test)):
        beside = {"labels": np.arange(len(some)) % 3} if with_labels else {}
        np.savez(place / f"{name}.npz", inputs=padded(some), **beside)
    net, result, err = measured(run, place, model)
    steps = {"steps": 11} if model == "Recurrent" else {}
    assert result["values"] == pytest.approx(one_by_one(net, train, test, **steps), rel=1e-5)
    count = sum(11 - len(text) for text in test)
    assert f"test.npz: {count} of 231 tokens are taken as padding (0 behind a text's end)" in err
    assert any(f"{count} of 231 tokens are taken as padding" in note for note in result["notes"])


def test_it_was_wrong_to_take_padding_for_text(run, place):
    train, test = texts(0, 60), texts(1, 21)
    np.savez(place / "train.npz", inputs=padded(train))
    np.savez(place / "test.npz", inputs=padded(test))
    net, result, err = measured(run, place, "Tokens", ["--padding", "none"])
    right = one_by_one(net, train, test)
    assert "taken as padding" not in err
    assert abs(result["values"]["NLC(rule=all)"] / right["NLC(rule=all)"] - 1) > 0.1


def test_another_token_may_be_the_padding(run, place):
    train, test = ([np.where(text == 39, 38, text) for text in texts(seed, n)] for seed, n in ((0, 60), (1, 21)))
    np.savez(place / "train.npz", inputs=padded(train, 39).astype(np.int32))
    np.savez(place / "test.npz", inputs=padded(test, 39).astype(np.int32))
    net, result, err = measured(run, place, "Tokens(padding=39)", ["--padding", "39"])
    assert result["values"] == pytest.approx(one_by_one(net, train, test), rel=1e-5)
    assert "(39 behind a text's end)" in err


@pytest.mark.parametrize("how", ["lengths", "attention_mask"])
def test_lengths_and_masks_of_the_file_decide(run, place, how):
    """Texts that end with the padding token keep it where the file says how long they are."""
    train, test = ([np.append(text, 0) for text in texts(seed, n)] for seed, n in ((0, 60), (1, 21)))
    for name, some in (("train", train), ("test", test)):
        lengths = np.array([len(text) for text in some])
        told = lengths if how == "lengths" else (np.arange(12) < lengths[:, None]).astype(np.int64)
        np.savez(place / f"{name}.npz", inputs=padded(some), **{how: told})
    net, result, err = measured(run, place, "Recurrent")
    assert result["values"] == pytest.approx(one_by_one(net, train, test, steps=12), rel=1e-5)
    assert "taken as padding" not in err


def test_named_inputs_go_to_the_model_with_their_mask(run, place):
    train, test = texts(0, 60), texts(1, 21)
    for name, some in (("train", train), ("test", test)):
        kept = padded([np.ones(len(text), int) for text in some], left=True)
        np.savez(place / f"{name}.npz", input_ids=padded(some, left=True), attention_mask=kept, labels=kept[:, 0])
    net, result, _ = measured(run, place, "Named")
    chosen = [nc.NC(0.5), nc.KMNC(7), nc.NBC(), nc.TKNC(2), nc.NLC(rule="all")]
    coverage = nc.Coverage(net, chosen)

    def alone(text):
        return {"input_ids": torch.from_numpy(text)[None], "attention_mask": torch.ones(1, len(text)).long()}

    coverage.calibrate([alone(text) for text in train], progress=False)
    for text in test:
        coverage.update(alone(text))
    assert result["values"] == pytest.approx(coverage.values(), rel=1e-5)


def test_sequences_of_numbers_may_have_lengths_too(run, place):
    rng = np.random.default_rng(0)
    signal, lengths = rng.normal(size=(9, 6, 2)).astype(np.float32), rng.integers(1, 7, 9)
    np.savez(place / "test.npz", inputs=signal, lengths=lengths)
    net = scope["Signal"]()
    save_file(net.state_dict(), place / "net.safetensors")
    arguments = ["own_texts:Signal", "--weights", "net.safetensors", "--data", "npz:test.npz", "-c", "nlc:rule=all"]
    code, _, err = run("measure", *arguments, "--json", "a.json", "--batch-size", 4)
    assert code == 0, err
    coverage = nc.Coverage(net, [nc.NLC(rule="all")])
    for row, length in enumerate(lengths):
        coverage.update(torch.from_numpy(signal[row : row + 1, :length]))
    assert json.loads((place / "a.json").read_text())["values"] == pytest.approx(coverage.values(), rel=1e-5)


def test_padding_before_a_text_is_told(run, place):
    np.savez(place / "test.npz", inputs=np.vstack([padded(texts(1, 9), left=True), [[3] * 5 + [0] * 6]]))
    code, _, err = run("measure", "own_texts:Tokens", "--data", "npz:test.npz", "-c", "nc")
    assert code == 0, err
    assert "texts begin with 0, which is not left out" in err


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"lengths": np.ones(3, int)}, "lengths of type int64 and shape (3,): expected 4 integers"),
        ({"lengths": np.full(4, 9)}, "lengths from 9 to 9: expected 0 to 5"),
        ({"attention_mask": np.ones((4, 4), int)}, "attention_mask of type int64 and shape (4, 4): expected (4, 5)"),
        ({"attention_mask": np.eye(4, 5, dtype=int)}, "has padding before or within a text: name the tokens input_ids"),
    ],
)
def test_lengths_and_masks_that_do_not_fit(run, place, arrays, message):
    np.savez(place / "test.npz", inputs=np.ones((4, 5), int), **arrays)
    code, _, err = run("measure", "own_texts:Tokens", "--data", "npz:test.npz", "-c", "nc")
    assert code == 2
    assert message in err


@pytest.mark.parametrize("pool", ["mean", "last", "max", "tokens"])
def test_what_is_made_of_tokens(run, tmp_path, monkeypatch, pool):
    (tmp_path / "pooled_texts.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    some = texts(1, 30)
    np.savez(tmp_path / "texts.npz", inputs=padded(some), labels=np.arange(30) % 3)
    torch.manual_seed(0)
    save_file(scope["Tokens"]().state_dict(), tmp_path / "weights.safetensors")
    command = ["pooled_texts:Tokens", "--weights", "weights.safetensors", "--data", "npz:texts.npz"]
    code, _, err = run(
        "measure", *command, "--pool", pool, "-c", "nlc:rule=all", "--json", "found.json", "--save", "found.ncov",
        "--evidence", "evidence.json",
    )  # fmt: skip
    assert code == 0, err
    torch.manual_seed(0)
    model = scope["Tokens"]()
    by_hand = nc.Coverage(model.eval(), [nc.NLC(rule="all")], pool=pool)
    for text in some:
        by_hand.update(torch.from_numpy(text)[None])
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["inputs"] == by_hand.inputs == (sum(map(len, some)) if pool == "tokens" else 30)
    assert found["values"]["NLC(rule=all)"] == pytest.approx(by_hand.values()["NLC(rule=all)"], rel=1e-5)
    assert nc.Coverage.load(tmp_path / "found.ncov", model).pool == pool
    code, out, err = run("verify", "evidence.json", *command)
    assert code == 0, out + err


def test_a_pool_that_is_none(run):
    code, _, err = run("measure", "demo:digits", "--data", "demo:digits", "--pool", "sum")
    assert code == 2
    assert "pool='sum': expected one of 'mean', 'last', 'max', 'tokens'" in " ".join(err.split())

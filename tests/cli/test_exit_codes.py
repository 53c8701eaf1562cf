"""How commands end: 2 for a mistake of the user's, 3 for one of ours, 4 for the machine's, 130 when interrupted."""

import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from neuralcov import coverage

MODULE = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

class Stops(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.fc = kind, nn.Linear(64, 10)

    def forward(self, x):
        out = self.fc(x.flatten(1))
        raise {"interrupt": KeyboardInterrupt, "cuda": torch.OutOfMemoryError, "host": MemoryError}[self.kind]

def huge():
    return nn.Linear(2**25, 2**25)

def broken_loader():
    yield torch.zeros(4, 1, 8, 8)
    raise ValueError("the second batch is rotten")

def failing():
    raise ValueError("no data today")
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a module of the user's own and a small suite."""
    (tmp_path / "own_exits.py").write_text(MODULE)
    images = np.random.default_rng(0).random((12, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", inputs=images, labels=np.arange(12) % 10)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("NEURALCOV_TRACEBACK", raising=False)
    return tmp_path


def one_sentence(err, words):
    assert "Traceback" not in err
    assert len([line for line in err.strip().splitlines() if line.startswith("neuralcov:")]) == 1
    assert words in err.replace("\n", " ")


def garbage(folder):
    (folder / "empty.pt").write_bytes(b"")
    (folder / "garbage.pt").write_bytes(b"garbage, not weights\n" * 20)
    (folder / "noise.pt").write_bytes(np.random.default_rng(1).bytes(2000))
    (folder / "number.pt").write_bytes(pickle.dumps(3))
    with zipfile.ZipFile(folder / "zip.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02K\x01.")
    torch.save({0: torch.zeros(2)}, folder / "numbered.pt")
    torch.save({"x": [1, 2]}, folder / "lists.pt")
    torch.save(torch.nn.Linear(3, 3).state_dict(), folder / "other.pt")
    (folder / "garbage.safetensors").write_bytes(b"garbage, not weights\n" * 20)
    save_file({"a": torch.zeros(300)}, folder / "cut.safetensors")
    whole = (folder / "cut.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    return sorted(folder.glob("*.pt")) + sorted(folder.glob("*.safetensors"))


def test_weights_that_are_none_are_refused_in_one_sentence(run, place):
    files = garbage(place)
    assert len(files) == 10
    for path in files:
        for command in (
            ["measure", "own_exits:make", "--weights", path, "--data", "npz:x.npz", "-c", "nc"],
            ["fuzz", "run", "own_exits:make", "--weights", path, "--data", "npz:x.npz", "-n", 1, "-o", place / "c"],
        ):
            code, out, err = run(*command)
            assert code == 2, (path, err)
            one_sentence(out + err, path.name)


@pytest.mark.parametrize("beside", [{}, {"labels": np.arange(12) % 3}])
def test_texts_need_labels_and_a_model_of_texts(run, place, beside):
    np.savez(place / "texts.npz", inputs=np.random.default_rng(0).integers(0, 50, (12, 9)), **beside)
    code, out, err = run("fuzz", "run", "own_exits:make", "--data", "npz:texts.npz", "-n", 1, "-o", place / "c")
    assert code == 2
    one_sentence(out + err, "12 inputs can serve as a seed" if beside else "expected labels beside texts")


def test_numbers_that_are_no_pictures_cannot_be_fuzzed_either(run, place):
    np.savez(place / "flat.npz", inputs=np.random.default_rng(0).random((12, 64)), labels=np.arange(12) % 3)
    code, out, err = run("fuzz", "run", "own_exits:make", "--data", "npz:flat.npz", "-n", 1, "-o", place / "c")
    assert code == 2
    one_sentence(out + err, "(12, 64) are numbers")


MEASURE = ["measure", "own_exits:make", "--data", "npz:x.npz", "-c", "nc"]


@pytest.mark.parametrize("error", [ValueError("boom"), KeyError("boom"), AssertionError(), EOFError("boom")])
def test_a_bug_of_ours_exits_with_3_and_shows_a_traceback_only_on_request(run, place, monkeypatch, error):
    def buggy(*_, **__):
        raise error

    # As if it were thrown by a line of our own.
    buggy.__code__ = buggy.__code__.replace(co_filename=coverage.__file__)
    monkeypatch.setattr(coverage.Coverage, "values", buggy)
    code, out, err = run(*MEASURE)
    assert code == 3
    if not isinstance(error, EOFError):  # typer itself takes that for an interrupt, and says so
        one_sentence(out + err, f"this is a bug in neuralcov: {type(error).__name__}")
        assert "NEURALCOV_TRACEBACK=1" in err
        monkeypatch.setenv("NEURALCOV_TRACEBACK", "1")
        code, _, err = run(*MEASURE)
        assert code == 3
        assert "Traceback (most recent call last)" in err


@pytest.mark.parametrize("kind", ["cuda", "host"])
def test_memory_that_runs_out_exits_with_4(run, place, kind):
    code, out, err = run("measure", f"own_exits:Stops(kind='{kind}')", "--data", "npz:x.npz", "-c", "nc")
    assert code == 4
    one_sentence(out + err, "the machine gave out")


def test_memory_that_the_host_does_not_have_exits_with_4(run, place):
    code, out, err = run("measure", "own_exits:huge", "--data", "npz:x.npz", "-c", "nc")
    assert code == 4
    one_sentence(out + err, "cannot be built")


def test_memory_that_runs_out_while_fuzzing_exits_with_4(run, place):
    model = "own_exits:Stops(kind='cuda')"
    code, _, err = run("fuzz", "run", model, "--data", "npz:x.npz", "-n", 1, "-o", place / "c")
    assert code == 4
    assert "out of memory with 12 inputs at once: went on with half of them" in err
    one_sentence(err.splitlines()[-1], "out of memory with a single input")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that is always full")
def test_a_full_disk_exits_with_4(run, place):
    code, out, err = run(*MEASURE, "--json", "/dev/full")
    assert code == 4
    one_sentence(out + err, "No space left on device")


def test_an_interrupt_exits_with_130(run, place):
    code, out, err = run("measure", "own_exits:Stops(kind='interrupt')", "--data", "npz:x.npz", "-c", "nc")
    assert code == 130
    assert "Traceback" not in out + err


def test_code_of_the_users_own_is_not_called_a_bug_of_ours(run, place, monkeypatch):
    for data, words in (("broken_loader", "failed with ValueError: the second batch"), ("failing", "cannot be made")):
        code, out, err = run("measure", "own_exits:make", "--data", f"own_exits:{data}", "-c", "nc")
        assert code == 2
        one_sentence(out + err, words)

    def theirs(*_, **__):
        raise ValueError("thrown in a test")

    monkeypatch.setattr(coverage.Coverage, "values", theirs)
    code, out, err = run(*MEASURE)
    assert code == 2
    one_sentence(out + err, "code of your own failed with ValueError: thrown in a test")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["measure"],
        ["measure", "own_exits:make"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "--batch-size", "0"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "--batch-size", "x"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "-c", "nc:2"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "-c", "nc:a=b=c"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "-c", "("],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "--padding", "x"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "--calibrate", "x.npz", "-c", "kmnc"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "--layers", "nothing*"],
        ["measure", "own_exits:make", "--data", "npz:own_exits.py"],
        ["measure", "own_exits:make", "--data", "npz:."],
        ["measure", "own_exits:make", "--data", "folder:."],
        ["measure", "own_exits:make", "--data", "folder:x.npz"],
        ["measure", "own_exits:make", "--data", "hf:nowhere"],
        ["measure", "own_exits:make(", "--data", "npz:x.npz"],
        ["measure", ":", "--data", "npz:x.npz"],
        ["measure", "own_exits:", "--data", "npz:x.npz"],
        ["measure", "own_exits:make", "--data", "own_exits:"],
        ["measure", "..:make", "--data", "npz:x.npz"],
        ["measure", "own_exits:make", "--data", "..:x"],
        ["measure", "hf:nowhere", "--data", "npz:x.npz"],
        ["measure", "timm:nowhere", "--data", "npz:x.npz"],
        ["measure", "torchvision:nowhere", "--data", "npz:x.npz"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "--device", "moon"],
        ["measure", "own_exits:make", "--data", "npz:x.npz", "--save", "own_exits.py/x.ncov"],
        ["layers", "own_exits:make", "--input", "3,3"],
        ["layers", "own_exits:make", "--layers", "nothing*"],
        ["combine", "x.npz", "-o", "c.ncov"],
        ["combine", ".", "-o", "c.ncov"],
        ["combine", "-o", "c.ncov"],
        ["fuzz", "show", "x.npz"],
        ["fuzz", "show", "."],
        ["fuzz", "replay", "."],
        ["fuzz", "resume", ".", "own_exits:make"],
        ["fuzz", "shrink", "nowhere"],
        ["fuzz", "export", ".", "-o", "out"],
        ["fuzz", "quality", "."],
        ["fuzz", "run", "own_exits:make", "--data", "npz:x.npz", "-o", "c", "--guide", "stars", "-n", "1"],
        ["fuzz", "run", "own_exits:make", "--data", "npz:x.npz", "-o", "c", "--schedule", "stars", "-n", "1"],
        ["fuzz", "run", "own_exits:make", "--data", "npz:x.npz", "-o", "c", "--min-gain", "-1", "-n", "1"],
        ["fuzz", "run", "own_exits:make", "--data", "npz:x.npz", "-o", "c", "--time-limit", "0", "-n", "1"],
        ["fuzz", "run", "own_exits:make", "--data", "npz:x.npz", "-o", "c", "-n", "1", "--against", "own_exits:no"],
        ["fuzz", "run", "own_exits:make", "--data", "npz:x.npz", "-o", "c", "--styles", "nowhere", "-n", "1"],
        ["fuzz", "run", "own_exits:make", "--data", "npz:x.npz", "-o", "c", "--mean", "1,2", "--std", "1,2", "-n", "1"],
        ["fuzz", "run", "own_exits:make", "--data", "npz:x.npz", "-o", "c"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_use_exits_with_2_and_no_traceback(run, place, arguments):
    code, out, err = run(*arguments)
    assert code == 2, err
    assert "Traceback" not in out + err
    assert err.strip()

"""Our files: every byte is under a checksum, and what cannot be read is said in one sentence."""

import io
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from neuralcov.core.container import SCHEMA, STATE, opened, write
from neuralcov.core.container import save as save_container
from neuralcov.core.digests import tensor_digest
from neuralcov.core.errors import StateFileError
from neuralcov.core.files import atomic_write

HEADER = {"layout": [["fc", 3]], "name": "é"}


def tensors():
    random = torch.Generator().manual_seed(0)
    return {
        "bits": torch.rand(5, 3, generator=random) > 0.5,
        "none": torch.empty(0, 2, dtype=torch.int64),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "matrix": torch.randn(3, 4, generator=random),
        "half": torch.randn(3, generator=random).bfloat16(),
        "bytes": torch.arange(5, dtype=torch.uint8),
    }


def written(content=STATE, header=HEADER, parts=None):
    file = io.BytesIO()
    identity = write(file, content, header, tensors() if parts is None else parts)
    return file.getvalue(), identity


def read(data, content=STATE):
    with opened(data, content) as file:
        return file.id, file.header, {name: file.read(name) for name in file.tensors}


def same(found, expected):
    return found.keys() == expected.keys() and all(
        found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in expected.items()
    )


def test_round_trip_by_us_and_by_safetensors():
    data, identity = written()
    found, header, parts = read(data)
    assert found == identity
    assert (header["layout"], header["name"]) == (HEADER["layout"], HEADER["name"])
    assert same(parts, tensors())
    theirs = load(data)
    assert all(torch.equal(theirs[name], tensor) for name, tensor in tensors().items() if name != "bits")
    assert theirs["bits"].shape == (2,)
    assert header["tensors"]["matrix"]["sha256"] == tensor_digest(tensors()["matrix"])
    # The same content has the same id, whatever the order of its tensors.
    assert written(parts=dict(reversed(tensors().items())))[1] == identity


def test_tensors_are_aligned_to_their_numbers():
    data, _ = written()
    (length,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    for name, tensor in tensors().items():
        assert name == "bits" or entries[name]["data_offsets"][0] % tensor.element_size() == 0


def test_every_flipped_byte_is_refused():
    """Each byte of a whole file, all of its bits and some of them: refused, or the content is what it was."""
    data, _ = written()
    refused = 0
    for place in range(len(data)):
        for flip in (0x01, 0x04, 0x10, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= flip
            try:
                _, header, parts = read(bytes(damaged))
            except StateFileError:
                refused += 1
                continue
            assert same(parts, tensors())
            assert header["name"] == HEADER["name"]
    assert refused >= 5 * len(data) - 50  # but for blanks that became other blanks


@given(st.integers(0, 4000), st.binary(min_size=0, max_size=20))
def test_what_is_cut_off_or_put_in_is_refused(place, inserted):
    data, _ = written()
    changed = data[:place] + inserted
    if changed == data:
        return
    with pytest.raises(StateFileError):
        read(changed)


def test_sentences():
    data, _ = written()
    cases = [
        (b"hello", "the bytes: not a neuralcov file, or cut short"),
        (save({"weight": torch.zeros(2)}), "a safetensors file, but not one that neuralcov wrote"),
        (save({"w": torch.zeros(2).to(torch.float8_e4m3fn)}), "a safetensors file, but not one that neuralcov wrote"),
        (data.replace(b'"neuralcov":"2"', b'"neuralcov":"7"'), f"schema 7, this neuralcov reads up to {SCHEMA}: upg"),
        (data.replace(b'\\"fc\\"', b'\\"fd\\"'), r"the header is damaged \(its SHA-256 does not fit\): take the"),
        (data[:-1] + bytes([data[-1] ^ 1]), r"the tensor bytes is damaged \(its SHA-256 does not fit\): take the file"),
        (data[:-1], "not a neuralcov file, or cut short"),
        (data + b"x", "not a neuralcov file, or cut short"),
    ]
    for content, sentence in cases:
        with pytest.raises(StateFileError, match=sentence):
            read(content)
    with pytest.raises(StateFileError, match="a state, expected a calibration"):
        read(data, "calibration")
    deep = b'{"__metadata__":' + b"[" * 100_000 + b"}"
    with pytest.raises(StateFileError, match="not a neuralcov file"):
        read(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(StateFileError, match="the tensor z is of type complex64, which files do not hold"):
        written(parts={"z": torch.zeros(2, dtype=torch.complex64)})


def test_large_parts_may_stay_on_disk(tmp_path):
    rows = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    save_container(tmp_path / "x", STATE, {}, {"rows": rows})
    with opened(tmp_path / "x", STATE) as file:
        mapped = file.read("rows", mapped=True)
    assert torch.equal(mapped, rows)
    content = bytearray((tmp_path / "x").read_bytes())
    content[-1] ^= 1
    (tmp_path / "x").write_bytes(content)
    with opened(tmp_path / "x", STATE) as file, pytest.raises(StateFileError, match="the tensor rows is damaged"):
        file.read("rows", mapped=True)


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "x").write_bytes(b"old")

    def interrupted():
        with atomic_write(tmp_path / "x") as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"old")]
    with atomic_write(tmp_path / "folder" / "x") as file:
        file.write(b"new")
    assert (tmp_path / "folder" / "x").read_bytes() == b"new"


def test_a_kill_while_writing_leaves_the_old_file(tmp_path):
    """Killed by the system between two tensors, where nothing of Python's own cleaning up is run."""
    target = tmp_path / "x"
    save_container(target, STATE, {"old": True}, {"rows": torch.ones(3)})
    script = """
import os, signal, sys, torch
from neuralcov.core import container
parts = container.stored_parts
def killed(tensor):
    yield from parts(tensor)
    os.kill(os.getpid(), signal.SIGKILL)
container.stored_parts = killed
container.save(sys.argv[1], "state", {"old": False}, {"a": torch.zeros(9), "b": torch.zeros(9)})
"""
    paths = os.pathsep.join([str(Path(__file__).parents[2] / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run([sys.executable, "-c", script, str(target)], env={**os.environ, "PYTHONPATH": paths})
    assert ended.returncode == -signal.SIGKILL
    _, header, parts = read_file(target)
    assert header["old"] is True
    assert torch.equal(parts["rows"], torch.ones(3))


def read_file(path):
    with opened(path, STATE) as file:
        return file.id, file.header, {name: file.read(name) for name in file.tensors}

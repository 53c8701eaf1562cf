"""Files behind URLs and open files: written, read, refused in one sentence."""

import builtins
import errno
import io
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import fsspec
import pytest

from neuralcov.core.errors import InputError, MissingExtraError
from neuralcov.core.files import (
    append_line,
    atomic_write,
    ending_of,
    is_file,
    local_path,
    name_of,
    opened_to_read,
    read_bytes,
    read_text,
    write_json,
    write_text,
)


@pytest.fixture
def memory():
    """An empty file system in memory."""
    found = fsspec.filesystem("memory")
    found.store.clear()
    found.pseudo_dirs[:] = [""]
    return found


@pytest.fixture
def failing(memory, monkeypatch):
    """The same, whose writes fail as those of a client with errors of its own."""

    class ClientError(Exception):
        pass

    def put_file(self, *args, **kwargs):
        raise ClientError("access denied\nand much more")

    monkeypatch.setattr(type(memory), "put_file", put_file)
    return memory


def write_half(place):
    with atomic_write(place) as file:
        file.write(b"half")
        raise RuntimeError


def test_a_url_is_written_and_read(memory):
    write_text("memory://runs/new/a.txt", "é")
    assert memory.cat("/runs/new/a.txt") == "é".encode()
    assert read_text("memory://runs/new/a.txt") == "é"
    assert is_file("memory://runs/new/a.txt")
    assert not is_file("memory://runs/new/b.txt")


def test_a_failed_block_sends_nothing(memory):
    write_text("memory://runs/a.txt", "old")
    with pytest.raises(RuntimeError):
        write_half("memory://runs/a.txt")
    assert memory.cat("/runs/a.txt") == b"old"


def test_a_file_url_is_a_path(tmp_path):
    place = (tmp_path / "a b" / "c.json").as_uri()
    assert "%20" in place
    write_json(place, [1])
    assert (tmp_path / "a b" / "c.json").read_text() == "[\n  1\n]\n"
    assert read_bytes(place) == b"[\n  1\n]\n"
    append_line(place, "x")
    assert read_text(place).endswith("]\nx\n")
    with pytest.raises(InputError, match="three slashes"):
        write_text("file://relative/a.txt", "")


def test_no_folder_of_this_machine_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("s3:/bucket/a", Path("s3://bucket/a")):
        with pytest.raises(InputError, match=r"^s3:/bucket/a: a URL has two slashes"):
            write_text(place, "")
    with pytest.raises(MissingExtraError):
        write_text("s3://bucket/a", "")
    assert not list(tmp_path.iterdir())


def test_a_folder_with_a_colon_stays_usable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run:").mkdir()
    write_text("run:/a", "x")
    assert (tmp_path / "run:" / "a").read_text() == "x"


@pytest.mark.skipif("s3fs" in sys.modules, reason="s3fs is there")
def test_a_missing_package_is_named():
    with pytest.raises(
        MissingExtraError, match=r"^s3://bucket/a: s3:// needs s3fs .* not installed: pip install s3fs$"
    ):
        read_bytes("s3://bucket/a")


def test_a_missing_fsspec_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "fsspec":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "fsspec.core", raising=False)
    monkeypatch.setattr("importlib.import_module", lambda name: without(name))
    with pytest.raises(
        MissingExtraError, match=r"URLs such as memory://a need fsspec: pip install 'neuralcov\[urls\]'"
    ):
        read_bytes("memory://a")


def test_an_unknown_protocol_is_refused():
    with pytest.raises(InputError, match=r"^gopher9://host/a: Protocol not known"):
        read_bytes("gopher9://host/a")


def test_errors_are_those_of_files(memory, failing):
    with pytest.raises(FileNotFoundError) as missing:
        read_bytes("memory://nowhere")
    assert missing.value.filename == "memory://nowhere"
    with pytest.raises(OSError, match="ClientError: access denied") as denied:
        write_text("memory://a", "x")
    assert (denied.value.errno, denied.value.filename) == (errno.EIO, "memory://a")
    assert "much more" not in str(denied.value)


def test_a_password_is_not_told():
    assert name_of("ftp://me:secret@host/a.json") == "ftp://host/a.json"
    assert name_of("a@b/c") == "a@b/c"
    assert ending_of("ftp://me:secret@host/a.JSON") == ".json"


def test_an_open_file_is_read_from_where_it_stands():
    file = io.BytesIO(b"before|after")
    file.seek(7)
    with opened_to_read(file) as copy:
        copy.seek(2)
        assert copy.read() == b"ter"
    assert not file.closed


def test_an_open_file_gets_all_or_nothing():
    file = io.BytesIO()
    file.write(b"before|")
    with pytest.raises(RuntimeError):
        write_half(file)
    with atomic_write(file) as part:
        part.write(b"xxcd")
        part.seek(0)
        part.write(b"ab")
    assert file.getvalue() == b"before|abcd"


def test_an_entry_of_an_archive_which_cannot_seek(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, archive.open("a", "w") as entry:
        write_text(entry, "é")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive, archive.open("a") as entry:
        assert read_text(entry) == "é"


def test_a_pipe_is_read():
    source = subprocess.Popen([sys.executable, "-c", "print('piped', end='')"], stdout=subprocess.PIPE)
    with source:
        assert read_bytes(source.stdout) == b"piped"


@pytest.mark.parametrize("file", [io.StringIO(), 3, None, pickle])
def test_what_is_no_file_is_refused(file):
    with pytest.raises(InputError, match="expected a path, a URL, or a file that is open in binary mode"):
        write_text(file, "")
    with pytest.raises(InputError, match="expected a path, a URL, or a file that is open in binary mode"):
        read_bytes(file)


def test_what_must_lie_here_refuses_urls(memory, tmp_path):
    with pytest.raises(InputError, match=r"^memory://a: expected a path on this machine"):
        local_path("memory://a")
    assert local_path(tmp_path) == tmp_path
    assert os.fspath(local_path("file://localhost/tmp")) == "/tmp"

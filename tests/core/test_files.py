"""Files written whole, and locks that outlive nobody."""

import json
import os
import subprocess
import sys
import threading

import pytest

from neuralcov.core.files import append_line, atomic_write, lock_file, write_bytes, write_json, write_text

LOCKED = """
import os, signal, sys
from pathlib import Path
from neuralcov.core.files import lock_file
held = lock_file(Path(sys.argv[1]), wait=False)
print("locked", flush=True)
sys.stdin.read()
"""


def test_every_way_to_write(tmp_path):
    write_bytes(tmp_path / "new" / "bytes", b"\x00\xff")
    write_text(tmp_path / "text", "é\n")
    write_json(tmp_path / "data", {"a": [1, None]})
    append_line(tmp_path / "lines", "a")
    append_line(tmp_path / "lines", "b")
    assert (tmp_path / "new" / "bytes").read_bytes() == b"\x00\xff"
    assert (tmp_path / "text").read_bytes() == "é\n".encode()
    assert json.loads((tmp_path / "data").read_text()) == {"a": [1, None]}
    assert (tmp_path / "lines").read_text() == "a\nb\n"
    assert {path.name for path in tmp_path.iterdir()} == {"new", "text", "data", "lines"}


def test_what_need_not_last_is_not_synced(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralcov.core.files.os.fsync", lambda handle: pytest.fail("synced"))
    (tmp_path / "data.unfinished").write_text("of a kill, and longer")
    write_json(tmp_path / "data", 1, durable=False)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("data", "1\n")]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "data", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "data", object())
    assert (tmp_path / "data").read_text() == "1\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "folder", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"directory|exists") as caught:
            write_text(path, "x")
        assert "unfinished" not in str(caught.value)
    long = tmp_path / ("x" * 250)
    with pytest.raises(OSError, match="too long") as caught:
        write_text(long, "x")
    assert caught.value.filename == str(long)


def test_a_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "x")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "x").read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()))
    reader.start()
    with atomic_write(tmp_path / "pipe") as file:
        file.write(b"hello")
    reader.join(10)
    assert found == ["hello"]


def test_a_lock_is_held_once_and_any_thread_may_release_it(tmp_path):
    held = lock_file(tmp_path / "folder" / "lock", wait=False)
    with pytest.raises(BlockingIOError) as caught:
        lock_file(tmp_path / "folder" / "lock", wait=False)
    assert caught.value.__cause__ is None
    thread = threading.Thread(target=held.release)
    thread.start()
    thread.join()
    with lock_file(tmp_path / "folder" / "lock", wait=True):
        pass


def test_a_killed_process_leaves_no_lock(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", LOCKED, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError):
            lock_file(tmp_path / "lock", wait=False)
        process.kill()
    lock_file(tmp_path / "lock", wait=False).release()

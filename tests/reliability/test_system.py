"""What the system may have against it: full and read-only disks, limits, files that change while they are read."""

import errno
import os
import resource
import subprocess
import time

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.container import opened, save
from neuralcov.core.errors import InputError, StateFileError
from neuralcov.core.files import atomic_write, require_writable, write_text
from neuralcov.core.spill import reserved

pytestmark = pytest.mark.skipif(os.name == "nt", reason="limits of Unix")


def measured(seed=0):
    coverage = nc.Coverage.of_layers({"a": 20, "b": 30}, [nc.NLC(), nc.NC(0.5), nc.TKNC(2)])
    random = torch.Generator().manual_seed(seed)
    coverage.update(activations={"a": torch.randn(9, 20, generator=random), "b": torch.randn(9, 30, generator=random)})
    return coverage


def in_child(function):
    """Run a function in a forked process; give its exit code, 0 if it returned."""
    process = os.fork()
    if process == 0:
        try:
            function()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], capture_output=True)
    if done.returncode:
        pytest.skip("nothing may be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_leaves_the_old_file(small_disk):
    coverage = measured()
    coverage.save(small_disk / "x.ncov")
    values = coverage.values()
    (small_disk / "filler").write_bytes(bytes((1 << 20) - 40_000 - (small_disk / "x.ncov").stat().st_size))
    coverage.update(activations={"a": torch.ones(1, 20), "b": torch.ones(1, 30)})
    with open(small_disk / "rest", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    with pytest.raises(StateFileError, match=r"x.ncov: cannot be written: No space left on device"):
        coverage.save(small_disk / "x.ncov")
    assert nc.Coverage.load(small_disk / "x.ncov").values() == values
    assert not list(small_disk.glob("*.unfinished"))


def test_no_room_for_traces_is_said_before_anything_is_written(small_disk, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    rows = reserved((1000, 10), np.float32, "rows")
    rows[:] = 1
    with pytest.raises(OSError, match=r"no room for 8 MB of rows .* set TMPDIR") as caught:
        reserved((200_000, 10), np.float32, "rows")
    assert caught.value.errno == errno.ENOSPC
    assert float(rows.sum()) == 10_000
    monkeypatch.setattr("neuralcov.statistics.row_blocks.BLOCK_BYTES", 1 << 20)
    coverage = nc.Coverage.of_layers({"a": 400}, [nc.LSC(1, memory=1)])
    with pytest.raises(OSError, match="no room for"):
        coverage.calibrate(activations=[{"a": torch.randn(500, 400)} for _ in range(4)], labels=None)


def test_files_that_may_not_grow(tmp_path):
    coverage = measured()

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(StateFileError, match="cannot be written: File too large"):
            coverage.save(tmp_path / "x.ncov")

    assert in_child(limited) == 0
    assert not list(tmp_path.iterdir())


def test_no_file_descriptors_left(tmp_path):
    coverage = measured()
    coverage.save(tmp_path / "x.ncov")

    def limited():
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        for attempt in (lambda: coverage.save(tmp_path / "y.ncov"), lambda: nc.Coverage.load(tmp_path / "x.ncov")):
            with pytest.raises(StateFileError, match="Too many open files"):
                attempt()

    assert in_child(limited) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.ncov"]


def test_a_read_only_place(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    mounted = [["mount", "--bind", place, place], ["mount", "-o", "remount,ro,bind", place]]
    if any(subprocess.run(line, capture_output=True).returncode for line in mounted):
        pytest.skip("nothing may be mounted here")
    try:
        with pytest.raises(StateFileError, match="Read-only file system"):
            measured().save(place / "x.ncov")
        with pytest.raises(InputError, match="cannot be written: Read-only file system; name a file"):
            require_writable(place / "x.ncov")
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_loaded_state_is_not_the_file_any_more(tmp_path):
    coverage = measured()
    coverage.save(tmp_path / "x.ncov")
    loaded = nc.Coverage.load(tmp_path / "x.ncov")
    size = (tmp_path / "x.ncov").stat().st_size
    with open(tmp_path / "x.ncov", "r+b") as file:
        file.write(bytes(size))
        assert loaded.values() == coverage.values()
        file.truncate(10)
        assert loaded.values() == coverage.values()


def test_parts_that_stay_on_disk_are_not_the_file_either(tmp_path):
    rows = torch.arange(40_000, dtype=torch.float32).reshape(-1, 4)
    save(tmp_path / "x", "state", {}, {"rows": rows})
    with opened(tmp_path / "x", "state") as file:
        mapped = file.read("rows", mapped=True)

    def used():
        os.truncate(tmp_path / "x", 10)
        assert torch.equal(mapped, rows)

    assert in_child(used) == 0  # a signal would end it otherwise


def test_loading_while_another_process_saves(tmp_path):
    """A value is that of one of the two states, in every load."""
    states = [measured(0), measured(1)]
    allowed = [coverage.values() for coverage in states]
    states[0].save(tmp_path / "x.ncov")
    process = os.fork()
    if process == 0:
        while True:
            for coverage in states:
                coverage.save(tmp_path / "x.ncov")
    try:
        until, loads = time.monotonic() + 3, 0
        while time.monotonic() < until:
            assert nc.Coverage.load(tmp_path / "x.ncov").values() in allowed
            loads += 1
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
    assert loads > 20


# Unfinished files


def test_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("old")
    (tmp_path / "x.unfinished").symlink_to(tmp_path / "precious")
    write_text(tmp_path / "x", "new", durable=False)
    assert (tmp_path / "precious").read_text() == "old"
    assert (tmp_path / "x").read_text() == "new"
    assert not (tmp_path / "x").is_symlink()


def test_what_a_kill_left_is_swept(tmp_path):
    old = time.time() - 60
    for name in ("x.1-ab.unfinished", "other.1-ab.unfinished", "x.unfinished.txt"):
        (tmp_path / name).write_text("left")
        os.utime(tmp_path / name, (old, old))
    (tmp_path / "x.2-cd.unfinished").write_text("young: it may not have its lock yet")
    (tmp_path / "x.3-ef.unfinished").symlink_to(tmp_path / "other.1-ab.unfinished")
    with atomic_write(tmp_path / "x") as outer:
        outer.write(b"1")
        unfinished = next(path for path in tmp_path.glob("x.*.unfinished") if path.stat().st_size == 0)
        os.utime(unfinished, (old, old))
        write_text(tmp_path / "x", "2")  # must leave alone what somebody writes, however old it seems
        assert unfinished.exists()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"x", "other.1-ab.unfinished", "x.unfinished.txt", "x.2-cd.unfinished", "x.3-ef.unfinished"}
    assert (tmp_path / "x").read_text() == "1"


def test_places_to_write_to(tmp_path):
    require_writable(None)
    require_writable(tmp_path / "new" / "x")
    assert list((tmp_path / "new").iterdir()) == []
    require_writable("/dev/null")
    (tmp_path / "file").write_text("x")
    require_writable(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"
    for path in (tmp_path, tmp_path / "file" / "x", ""):
        with pytest.raises(InputError, match="cannot be written"):
            require_writable(path)

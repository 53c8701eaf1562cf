"""The loops of this folder, a little of each; docs/reliability.md says how to run them for long."""

import collections
import os
import signal
import time

import pytest

from tests.reliability import damage, kills, memory
from tests.reliability.mutation import damaged, dice_of


def test_damage_follows_from_its_number():
    content = bytes(range(256)) * 4
    assert damaged(content, [content], dice_of("x", 3)) == damaged(content, [content], dice_of("x", 3))
    assert len({damaged(content, [content], dice_of("x", number)) for number in range(50)}) > 40


def test_damaged_files_end_in_one_sentence(tmp_path):
    tallies, faults = damage.damage(0.01, tmp_path, start=0, size=60)
    assert faults == []
    assert sum(tallies["states"].values()) == 60


class Bad:
    """A reader that fails in each way that a loop looks for, by the first byte that it is given."""

    name, signed, examples = "bad", False, {"x": b"sound"}

    def damage(self, name, content, dice):
        return self.content

    def read(self, name, content, folder):
        if content == b"sound":
            return 1
        return getattr(self, content.decode())(folder)

    def differs(self, folder):
        return 2

    def fails(self, folder):
        raise ZeroDivisionError("nothing\nto be read")

    def loops(self, folder):
        while True:
            pass

    def grows(self, folder):
        return bytes(1 << 40)

    def escapes(self, folder):
        (folder.parent / "out").touch()
        return 1

    def crashes(self, folder):
        os._exit(5)

    def sleeps(self, folder):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGPROF})
        time.sleep(60)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"differs", "a value that differs"),
        (b"fails", "ZeroDivisionError at"),
        (b"loops", "hang over 0.2 s"),
        (b"grows", "MemoryError at"),
        (b"escapes", "wrote ['out'] outside the folder"),
        (b"crashes", "the process ended with 5"),
        (b"sleeps", "the process ended with -9"),
    ],
)
def test_what_the_loop_finds(tmp_path, monkeypatch, content, said):
    monkeypatch.setattr(damage, "HANG", 0.2)
    monkeypatch.setattr(damage, "SILENT", 2)
    subject = Bad()
    subject.content = content
    done, faults = damage.piece(subject, range(7, 8), tmp_path, collections.Counter(), set())
    assert done == 8
    assert [fault["number"] for fault in faults] == [7]
    assert faults[0]["fault"].startswith(said)


def test_kills_lose_nothing(tmp_path):
    found = kills.main(tmp_path, 8, ["save", "calibrate", "measure", "combine"], 60)
    assert found["faults"] == []
    assert found["kills"] == 8
    assert found["unfinished files after a sweep"] == 0


@pytest.mark.slow
def test_many_damaged_files_end_in_one_sentence(tmp_path):
    assert damage.damage(600, tmp_path)[1] == []


@pytest.mark.slow
def test_many_kills_lose_nothing(tmp_path):
    assert kills.main(tmp_path, 1000, list(kills.WORK), 1200)["faults"] == []


@pytest.mark.slow
def test_memory_stays_flat():
    assert memory.main(1_000_000, 100_000)["grown"] == []

"""The loops of this folder, a little of each; docs/reliability.md says how to run them for long."""

import pytest

from tests.reliability import damage, kills, memory
from tests.reliability.mutation import damaged, dice_of


def test_damage_follows_from_its_number():
    content = bytes(range(256)) * 4
    assert damaged(content, [content], dice_of("x", 3)) == damaged(content, [content], dice_of("x", 3))
    assert len({damaged(content, [content], dice_of("x", number)) for number in range(50)}) > 40


def test_damaged_files_end_in_one_sentence(tmp_path):
    counts, faults = damage.main(0.01, tmp_path, start=0, size=60)
    assert faults == []
    assert counts["states"]["files"] == 60


def test_kills_lose_nothing(tmp_path):
    found = kills.main(tmp_path, 8, ["save", "calibrate", "measure", "combine"], 60)
    assert found["faults"] == []
    assert found["kills"] == 8
    assert found["unfinished files after a sweep"] == 0


@pytest.mark.slow
def test_many_damaged_files_end_in_one_sentence(tmp_path):
    assert damage.main(600, tmp_path)[1] == []


@pytest.mark.slow
def test_many_kills_lose_nothing(tmp_path):
    assert kills.main(tmp_path, 1000, list(kills.WORK), 1200)["faults"] == []


@pytest.mark.slow
def test_memory_stays_flat():
    assert memory.main(1_000_000, 100_000)["grown"] == []

"""The log under torn and damaged packs, and records through bytes and back."""

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import load

from neuralcov.core.errors import CampaignError
from neuralcov.fuzz.campaign.log import CANDIDATE, KEPT, NOT_FINITE, Log, WaveRecord


def some_record(wave=3, kept=2):
    rows = 4
    rng = np.random.default_rng(wave)
    candidates = np.zeros(rows, CANDIDATE)
    for name in ("lane", "parent", "tries", "mutation", "setting", "row", "batch_size", "prediction"):
        candidates[name] = rng.integers(0, 5, rows)
    candidates["fresh"] = [True, False, True, False]
    candidates["verdict"] = np.where(np.arange(rows) < kept, KEPT, 1)
    candidates["fault_types"] = [0, 1, 4, 0]
    candidates["saved"] = [1, 1, 1, 0]
    candidates["margin"] = [0.5, np.nan, -0.25, 1.0]
    return WaveRecord(
        wave=wave,
        candidates=candidates,
        inputs=rng.integers(0, 256, (3, 1, 2, 2), dtype=np.uint8),
        comparisons=rng.integers(0, 256, (1, 1, 2, 2), dtype=np.uint8),
        messages={2: "ValueError: no"},
        limit=None,
        seconds=1.25,
    )


def test_files_keep_the_first_names_and_types_of_columns():
    arrays = {name: str(array.dtype) for name, array in load(some_record().to_bytes()).items()}
    assert arrays == {
        "slot": "int32", "seed": "int32", "fresh": "uint8", "tries": "int16", "mutation": "int16", "setting": "int64",
        "place": "int32", "size": "int32", "verdict": "uint8", "prediction": "int64", "kinds": "int32",
        "inputs": "uint8", "references": "uint8", "saved": "uint8", "margin": "float64", "rival": "int64",
        "then_mutation": "int16", "then_setting": "int64", "then_row": "int32", "then_batch_size": "int32",
    }  # fmt: skip


def test_a_record_comes_back():
    record = some_record()
    again = WaveRecord.from_bytes(record.to_bytes())
    assert again.same_as(record)
    assert (again.wave, again.limit, again.seconds, again.messages) == (3, None, 1.25, {2: "ValueError: no"})
    assert again.saved.tolist() == [0, 1, 2]
    assert again.kept.tolist() == [0, 1]
    assert not dataclasses.replace(record, wave=4).same_as(record)
    assert not dataclasses.replace(record, inputs=record.inputs + 1).same_as(record)
    with pytest.raises(CampaignError, match="cannot be read"):
        WaveRecord.from_bytes(b"nothing of the kind")


def test_a_class_told_of_nan_is_none():
    """As logs of earlier versions have it."""
    record = some_record()
    record.candidates["fault_types"] = [0, 1 << NOT_FINITE, 0, 0]
    record.candidates["prediction"] = 3
    assert WaveRecord.from_bytes(record.to_bytes()).candidates["prediction"].tolist() == [3, -1, 3, 3]


def test_every_cut_leaves_the_packs_before_it(tmp_path):
    log = Log(tmp_path / "queue.log")
    packs = [bytes([number]) * (5 + number) for number in range(4)]
    ends = []
    for pack in packs:
        log.append(pack)
        ends.append(log.path.stat().st_size)
    log.sync()
    log.close()
    whole = log.path.read_bytes()
    for size in range(len(whole) + 1):
        log.path.write_bytes(whole[:size])
        complete = [pack for pack, end in zip(packs, ends, strict=True) if end <= size]
        assert list(log.read()) == complete
        torn = log.left_out
        assert log.repair() == torn
        assert torn == size - max([0, *(end for end in ends if end <= size)])
        log.append(b"next")
        assert list(log.read()) == [*complete, b"next"]
        log.close()


def test_damage_in_the_middle_is_said(tmp_path):
    log = Log(tmp_path / "queue.log")
    for pack in (b"one", b"two", b"three"):
        log.append(pack)
    log.close()
    content = bytearray(log.path.read_bytes())
    content[17] ^= 1
    log.path.write_bytes(bytes(content))
    with pytest.raises(CampaignError, match=r"damaged .* bytes before its end"):
        list(log.read())


def test_a_damaged_length_is_no_torn_pack(tmp_path):
    """Whatever bit is wrong in whatever length: never do packs behind it go unnoticed."""
    log = Log(tmp_path / "queue.log")
    packs = [bytes([65 + number]) * 40 for number in range(3)]
    for pack in packs:
        log.append(pack)
    log.close()
    whole = log.path.read_bytes()
    for start in (0, 56):
        # Also a length that reaches to the end exactly.
        for length in [*(40 ^ 1 << bit for bit in range(64)), 168 - start - 16]:
            content = bytearray(whole)
            content[start + 4 : start + 12] = length.to_bytes(8, "little")
            log.path.write_bytes(bytes(content))
            with pytest.raises(CampaignError, match=rf"damaged {168 - start} bytes before its end; restore it"):
                list(log.read())
            with pytest.raises(CampaignError, match="damaged"):
                log.repair()
            assert log.path.read_bytes() == bytes(content)


def test_a_picture_that_looks_like_a_mark_is_no_pack(tmp_path):
    log = Log(tmp_path / "queue.log")
    log.append(b"one")
    log.append(b"ncvw" * 30)
    log.close()
    log.path.write_bytes(log.path.read_bytes()[:-5])
    assert list(log.read()) == [b"one"]
    assert log.repair() == 16 + 115


def test_no_log_is_an_empty_one(tmp_path):
    log = Log(tmp_path / "queue.log")
    assert list(log.read()) == []
    assert log.repair() == 0


def test_a_damaged_pack_at_the_end_is_left_out_and_counted(tmp_path):
    """It looks like one that a power cut left half on the disk; so whoever reads the log can tell."""
    log = Log(tmp_path / "queue.log")
    for pack in (b"one", b"two"):
        log.append(pack)
    log.close()
    content = bytearray(log.path.read_bytes())
    assert (list(log.read()), log.left_out) == ([b"one", b"two"], 0)
    content[-1] ^= 1
    log.path.write_bytes(bytes(content))
    assert (list(log.read()), log.left_out) == ([b"one"], 19)

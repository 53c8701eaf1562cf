import pytest
import torch

from neuralcov.core.errors import HyperParameterError
from neuralcov.core.memory import blocks, parse_bytes, show_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("16GiB", 16 * 2**30), ("1 KB", 1000), ("2.5mb", 2_500_000), (77, 77), ("12", 12), ("3T", 3 * 2**40)],
)
def test_reading(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1GB", "ten", "5 PB", 0, -3, None])
def test_not_a_size(text):
    with pytest.raises(HyperParameterError, match="memory="):
        parse_bytes(text)


def test_writing():
    assert [show_bytes(n) for n in (5, 999, 1000, 999_499, 1.5e9, 2e15)] == [
        "5 B", "999 B", "1 kB", "999 kB", "1.5 GB", "2e+03 TB",
    ]  # fmt: skip


@pytest.mark.parametrize("length", [0, 1, 7, 1000])
@pytest.mark.parametrize("each", [1, 1000, 1 << 30])
def test_blocks_cover_everything_once(length, each):
    found = [i for rows in blocks(length, each, torch.device("cpu")) for i in range(rows.start, rows.stop)]
    assert found == list(range(length))

"""Amounts of memory: reading ``"16GiB"``, writing ``113 GB``, and cutting work into blocks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from neuralcov.core.errors import HyperParameterError, MemoryBudgetError

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}IB"] = 1024**_power
    _UNITS[f"{_letter}B"] = 1000**_power

# Elements worked on at a time. A CPU is fastest when a block and its temporaries stay in cache; a GPU
# when a block fills it, and there the bound only keeps temporaries from filling its memory.
BLOCK_ELEMENTS = {"cpu": 1 << 18}
_BLOCK_ELEMENTS_ELSEWHERE = 1 << 26

# PyTorch has no error type of its own for the memory of the host.
_OUT_OF_HOST_MEMORY = ("DefaultCPUAllocator", "not enough memory", "CUDA error: out of memory")


def parse_bytes(text: str | int) -> int:
    """Return the number of bytes in ``"16GiB"``, ``"500 MB"`` or a plain number.

    >>> parse_bytes("1.5 KiB")
    1536
    """
    if isinstance(text, int) and not isinstance(text, bool):
        amount = text
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?(?:I?B)?)\s*", str(text).upper())
        if match is None or match[2] not in _UNITS:
            raise HyperParameterError(f"memory={text!r}: expected a size such as '16GiB' or '500MB'")
        amount = int(float(match[1]) * _UNITS[match[2]])
    if amount <= 0:
        raise HyperParameterError(f"memory={text!r}: must be above 0")
    return amount


def available_bytes(device: torch.device) -> int | None:
    """Return how much memory a device has left; ``None`` where nobody tells."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    if device.type != "cpu":
        return None
    left = [amount for amount in (_of_system(), _of_container()) if amount is not None]
    return min(left, default=None)


def _of_system() -> int | None:
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None  # no Linux, or an old one


def _of_container() -> int | None:
    """Return what a container's limit leaves, where it has one."""
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text() for name in ("max", "current"))
        cached = dict(line.split() for line in Path("/sys/fs/cgroup/memory.stat").read_text().splitlines())
        return int(limit) - int(used) + int(cached.get("inactive_file", 0))
    except (OSError, ValueError):
        return None  # no such container, or one without a limit


def show_bytes(amount: float) -> str:
    """Format an amount of memory with three figures.

    >>> show_bytes(112_800_000_000)
    '113 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def blocks(length: int, elements_each: int, device: torch.device) -> Iterator[slice]:
    """Yield slices that cut ``length`` items into blocks of a size that suits the device.

    >>> list(blocks(5, 1 << 17, torch.device("cpu")))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    limit = BLOCK_ELEMENTS.get(device.type, _BLOCK_ELEMENTS_ELSEWHERE)
    step = max(1, limit // max(1, elements_each))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the memory of a device or of the host gave out."""
    if isinstance(error, MemoryBudgetError):
        return False  # a memory= that was set too low is the user's to change
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_HOST_MEMORY)


def memory_of(device: torch.device) -> int | None:
    """Return how many bytes a device has in all, ``None`` where that cannot be told."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "cpu":
        with suppress(ValueError, OSError, AttributeError):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def require_room(size: int, device: torch.device, what: str, advice: str) -> None:
    """Refuse what a device cannot hold, however much of it were free.

    Args:
        size: bytes that are needed.
        device: where.
        what: that needs them, for the message.
        advice: what to do instead.
    """
    there = memory_of(device)
    if there is not None and size > there:
        raise MemoryBudgetError(f"{what} takes {show_bytes(size)}, {device} has {show_bytes(there)}: {advice}")

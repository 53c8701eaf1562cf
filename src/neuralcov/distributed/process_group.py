"""Bytes carried between the processes of a ``torch.distributed`` group: up a tree to rank 0, and down again.

In round r of the way up, every rank whose number is an odd multiple of 2^r hands what it has to the rank 2^r before it,
which takes it in behind its own. So rank 0 has all parts in the order of the ranks after ⌈log₂ W⌉ rounds, and sends
the result down the same tree. A rank that fails sends a sentence in place of its part, on which all others give up; one
that is gone, or silent for too long, is noticed by the rank that waits for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from neuralcov.core.errors import InputError, NeuralcovError, RankError

_PART, _FAILURE = 0, 1
# So much longer than the way up may take, ranks wait for the result, so that they are told who failed.
_GRACE = 5.0
_LENGTH = 8

Group = Any

PATIENCE = timedelta(days=1)
"""How long processes of a command wait for one that is there and silent: another may calibrate for hours."""


class Ranks:
    """Exchange bytes with the other processes of a group; every process calls the same methods in the same order.

    Args:
        group: of ``torch.distributed``; ``None`` is that of all processes.
        timeout: seconds after which a rank that does not answer is given up; by default the group's own timeout.
    """

    def __init__(self, group: Group | None = None, timeout: float | None = None) -> None:
        if timeout is not None and not timeout > 0:
            raise InputError(f"timeout={timeout!r}: expected seconds above 0")
        self._group, self._timeout = group, timeout
        self.rank, self.size = distributed.get_rank(group), distributed.get_world_size(group)
        if self.rank < 0:
            raise InputError("group=: this process is not in it; call this in its processes only")
        nccl = distributed.get_backend(group) == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
        self._deadline: float | None = None

    def reduce(self, pack: Callable[[], bytes], take: Callable[[int, bytes], None]) -> bytes:
        """Return, in every process, what rank 0 packs once it has taken in the parts of all.

        Args:
            pack: what this process has, those that it took in behind its own included.
            take: take in what a rank packed; called in the order of the ranks.

        Raises:
            RankError: in every process but the one that failed, which raises what went wrong there.
        """
        self._deadline = None if self._timeout is None else time.monotonic() + self._timeout
        failure, part = self._up(pack, take)
        if self._deadline is not None:
            self._deadline += _GRACE
        whole = self._down(part, failure)
        if failure is not None:
            raise failure
        return whole

    def gather(self, pack: Callable[[], bytes]) -> list[bytes]:
        """Return, in every process, the bytes of all processes in the order of the ranks."""
        parts: list[bytes] = []

        def pack_all() -> bytes:
            return _joined([pack(), *parts])

        return _parted(self.reduce(pack_all, lambda _, part: parts.extend(_parted(part))))

    def share(self, pack: Callable[[], bytes]) -> bytes:
        """Return, in every process, what rank 0 packs; the others pack nothing."""
        return self.reduce(lambda: b"" if self.rank else pack(), lambda *_: None)

    def _up(self, pack: Callable[[], bytes], take: Callable[[int, bytes], None]) -> tuple[Exception | None, bytes]:
        """Take in the parts of the ranks below, and hand all to the rank above."""
        failure: Exception | None = None
        for below in self._below():
            # Those that come after one that failed are listened to as well, or they would wait for nothing.
            try:
                part = self._receive(below)
                if failure is None:
                    take(below, part)
            except Exception as error:
                failure = failure or error
        part = b""
        if failure is None:
            try:
                part = pack()
            except Exception as error:
                failure = error
        if self.rank:
            try:
                self._send(self._above, part, failure)
            except RankError as error:
                failure = failure or error
        return failure, part

    def _down(self, part: bytes, failure: Exception | None) -> bytes:
        """Hand the result, or the failure, from rank 0 to all."""
        if self.rank:
            try:
                part = self._receive(self._above)
            except RankError as error:
                if failure is None:
                    self._tell_below(b"", error)
                    raise
        self._tell_below(part, failure)
        return part

    def _tell_below(self, part: bytes, failure: Exception | None) -> None:
        unreached: RankError | None = None
        for below in reversed(list(self._below())):
            try:
                self._send(below, part, failure)
            except RankError as error:
                unreached = unreached or error
        if unreached is not None and failure is None:
            raise unreached

    @property
    def _above(self) -> int:
        """The rank that takes in what this one has: its number without the lowest bit."""
        return self.rank & (self.rank - 1)

    def _below(self) -> Iterator[int]:
        """Yield the ranks that hand their parts to this one, in order."""
        step = 1
        while step < self.size and not self.rank & step:
            if self.rank + step < self.size:
                yield self.rank + step
            step *= 2

    def _send(self, to: int, part: bytes, failure: Exception | None) -> None:
        if failure is not None:
            part = _sentence(self.rank, failure).encode()
        head = torch.tensor([_PART if failure is None else _FAILURE, len(part)], device=self._device)
        self._finish(distributed.isend, head, to)
        if part:
            body = torch.frombuffer(bytearray(part), dtype=torch.uint8).to(self._device)
            self._finish(distributed.isend, body, to)

    def _receive(self, source: int) -> bytes:
        head = torch.zeros(2, dtype=torch.int64, device=self._device)
        self._finish(distributed.irecv, head, source)
        kind, length = head.tolist()
        body = torch.empty(length, dtype=torch.uint8, device=self._device)
        if length:
            self._finish(distributed.irecv, body, source)
        part: bytes = body.cpu().numpy().tobytes()
        if kind == _FAILURE:
            raise RankError(part.decode())
        return part

    def _finish(self, start: Callable[..., Any], tensor: Tensor, other: int) -> None:
        """Send or receive a tensor, or raise the error that names the other rank."""
        peer = other if self._group is None else distributed.get_global_rank(self._group, other)
        try:
            work = start(tensor, peer, group=self._group)
            if self._deadline is None:
                done = work.wait()
            else:
                done = work.wait(timedelta(seconds=max(0.001, self._deadline - time.monotonic())))
        except (RuntimeError, ValueError) as error:
            # A gloo group that has waited for one rank in vain closes its connections to all.
            late = "imed out" in str(error)
            what = f"did not answer {self._within}" if late else "is gone, or has given up another rank"
            raise RankError(f"rank {other} {what}: look at what it said last, and start all processes again") from error
        if not done:
            raise RankError(f"rank {other} did not answer {self._within}: start all processes again")

    @property
    def _within(self) -> str:
        return "within the timeout of its group" if self._timeout is None else f"within {self._timeout:g} s"


def ranks_of(group: Group | None = None, timeout: float | None = None) -> Ranks | None:
    """Return the processes of a group; ``None`` where no group was started, and where it has one process.

    Args:
        group: of ``torch.distributed``; ``None`` is that of all processes.
        timeout: seconds after which a rank that does not answer is given up; by default the group's own timeout.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        if group is not None:
            raise InputError("group=: no process group was started: call torch.distributed.init_process_group first")
        return None
    found = Ranks(group, timeout)
    return found if found.size > 1 else None


def joined_by_torchrun() -> bool:
    """Return whether ``torchrun`` started this process as one of several; then join their group, if nobody has yet."""
    if not distributed.is_available() or not distributed.is_torchelastic_launched():
        return False
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return False
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", timeout=PATIENCE)
    return True


def _sentence(rank: int, failure: Exception) -> str:
    """Say what went wrong in a rank; what another one said is passed on as it is."""
    if isinstance(failure, RankError):
        return str(failure)
    said = str(failure) if isinstance(failure, NeuralcovError) else f"{type(failure).__name__}: {failure}"
    return f"rank {rank} failed: {said}"


def _joined(parts: Sequence[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(_LENGTH, "little") + part for part in parts)


def _parted(whole: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(whole):
        start = at + _LENGTH
        at = start + int.from_bytes(whole[at:start], "little")
        parts.append(whole[start:at])
    return parts

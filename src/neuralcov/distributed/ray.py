"""Messages to actors of Ray that come and go, and tasks whose results are merged up a tree.

Ray places an actor where the resources that it asks for are free. More may be asked for than there are: those without a
place wait, and join when a machine does. One that is lost, alone or with its machine, is replaced by a new one.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Self

from neuralcov.core.arguments import require
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError, NeuralcovError, RankError
from neuralcov.distributed.workers import Answer, Event

_LOOK = 1.0
# How often Ray runs a task again whose worker died.
_RETRIES = 3


class RayCluster:
    """Join a cluster of Ray, or start one on this machine; end what was started with the block.

    Args:
        address: of a cluster, or ``"auto"``; by default one is started here, unless the program has joined one.
        processors: of one that is started here; by default all.
    """

    def __init__(self, address: str | None = None, processors: int | None = None) -> None:
        self.ray = require("ray", "workers on Ray", extra="ray")
        self._ours = not self.ray.is_initialized()
        if self._ours:
            # Nobody was asked.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            options: dict[str, Any] = {} if address is not None else {"num_cpus": processors}
            self.ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR", **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, if it was joined here."""
        if self._ours:
            self._ours = False
            self.ray.shutdown()

    def reduce(
        self, work: Callable[[int], bytes], merge: Callable[[bytes, bytes], bytes], count: int, **resources: Any
    ) -> bytes:
        """Return what tasks 0 … count − 1 come to, merged by pairs up a tree, in order.

        A task whose worker dies is run again; one that fails ends all.

        Args:
            work: what a task does, given its number.
            merge: two results to one, the first's number being the lower.
            count: how many tasks.
            resources: what each asks for, such as ``num_cpus=1``, ``num_gpus=0.5``.
        """
        if count < 1:
            raise InputError(f"count={count}: expected at least one task")
        remote = self.ray.remote(max_retries=_RETRIES, **{"num_cpus": 1, **resources})
        do, join = remote(_named_work), self.ray.remote(max_retries=_RETRIES, num_cpus=1)(_named_merge)
        parts = [do.remote(work, number) for number in range(count)]
        while len(parts) > 1:
            pairs = [parts[start : start + 2] for start in range(0, len(parts), 2)]
            parts = [pair[0] if len(pair) == 1 else join.remote(merge, *pair) for pair in pairs]
        try:
            found = self.ray.get(parts[0])
        except self.ray.exceptions.RayTaskError as error:
            raise RankError(f"a task failed: {_said(error)}") from error
        except self.ray.exceptions.RayError as error:
            raise RankError(f"a task's worker died {_RETRIES + 1} times: {_first_line(error)}") from error
        assert isinstance(found, bytes)
        return found


class RayWorkers:
    """Run workers as actors, see ``Workers``.

    Args:
        build: makes what answers messages; called in every worker, which Ray gives it by value.
        count: how many workers to have at most; those for which there is no room yet join later.
        address: see ``RayCluster``.
        patience: seconds to wait while no worker is there.
        resources: what a worker asks for, such as ``num_cpus=4``, ``num_gpus=1``.
    """

    def __init__(
        self,
        build: Callable[[], Answer],
        count: int = 1,
        *,
        address: str | None = None,
        patience: float = 600.0,
        **resources: Any,
    ) -> None:
        if count < 1:
            raise InputError(f"{counted(count, 'worker')}: expected at least 1")
        self._build, self._patience = build, patience
        self._cluster = RayCluster(address)
        self._ray = self._cluster.ray
        asked = {"num_cpus": 1, **resources, "max_restarts": 0}
        self._actor = self._ray.remote(**asked)(_Actor)
        self._actors: dict[int, Any] = {}
        self._joined: set[int] = set()
        # What each actor is at: its start, or a message.
        self._awaited: dict[Any, int] = {}
        self._events: deque[Event] = deque()
        self._wanted, self._next = 0, 0
        self._alone_since = time.monotonic()
        self.resize(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._joined)

    def close(self) -> None:
        """End all workers, and the cluster if it was started here."""
        for worker in list(self._actors):
            self._drop(worker)
        self._cluster.close()

    def resize(self, count: int) -> None:
        """Ask for more workers, or let some go, those at work last."""
        self._wanted = count
        spare = len(self._actors) - count
        busy = set(self._awaited.values())
        for worker in sorted(self._actors, key=lambda worker: (worker in self._joined, worker in busy))[
            : max(spare, 0)
        ]:
            self._drop(worker)
            self._events.append(Event("lost", worker))
        self._fill()

    def pids(self) -> list[int]:
        """Return the process of each worker that waits; those are on this machine or others."""
        return [self._ray.get(self._actors[worker].pid.remote()) for worker in self.waiting()]

    def share(self, content: Any) -> Any:
        """Put content where all workers can read it; return what stands for it in messages."""
        return self._ray.put(content)

    def send(self, worker: int, message: Mapping[str, Any]) -> None:
        """Send a message to a worker that waits for one."""
        self._awaited[self._actors[worker].answer.remote(dict(message))] = worker

    def waiting(self) -> list[int]:
        """Return the workers that are there and have nothing to do."""
        return sorted(self._joined - set(self._awaited.values()))

    def receive(self) -> Event:
        """Wait for the next event.

        Raises:
            RankError: a worker failed, or none is there for too long.
        """
        while True:
            if self._events:
                return self._events.popleft()
            ready, _ = self._ray.wait(list(self._awaited), num_returns=1, timeout=_LOOK)
            if ready:
                return self._event(ready[0])
            if self._joined:
                self._alone_since = time.monotonic()
            elif time.monotonic() - self._alone_since > self._patience:
                raise RankError(
                    f"no worker came within {self._patience:g} s: is there a machine with what each asks for? "
                    f"The cluster has {self._ray.cluster_resources()}"
                )

    def _event(self, reference: Any) -> Event:
        worker = self._awaited.pop(reference)
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise RankError(f"worker {worker} failed: {_said(error)}") from error
        except self._ray.exceptions.RayError:
            self._drop(worker)
            self._fill()
            return Event("lost", worker)
        if worker in self._joined:
            return Event("answered", worker, found)
        self._joined.add(worker)
        return Event("joined", worker)

    def _drop(self, worker: int) -> None:
        self._ray.kill(self._actors.pop(worker))
        if worker in self._joined:
            self._joined.remove(worker)
            self._alone_since = time.monotonic()
        self._awaited = {reference: other for reference, other in self._awaited.items() if other != worker}

    def _fill(self) -> None:
        while len(self._actors) < self._wanted:
            actor = self._actor.remote(self._build)
            self._actors[self._next] = actor
            self._awaited[actor.ready.remote()] = self._next
            self._next += 1


class _Actor:
    """Hold what answers messages, in a process of Ray."""

    def __init__(self, build: Callable[[], Answer]) -> None:
        self._answer = build()

    def ready(self) -> None:
        """Answer once everything is built."""

    def pid(self) -> int:
        return os.getpid()

    def answer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        ray = require("ray", "workers on Ray", extra="ray")

        def fetched(value: Any) -> Any:
            if isinstance(value, ray.ObjectRef):
                return ray.get(value)
            return [fetched(each) for each in value] if isinstance(value, list) else value

        return self._answer({name: fetched(value) for name, value in message.items()})


def _named_work(work: Callable[[int], bytes], number: int) -> bytes:
    """Do a task: Ray shows the names of functions."""
    return work(number)


def _named_merge(merge: Callable[[bytes, bytes], bytes], one: bytes, other: bytes) -> bytes:
    """Merge what two tasks came to."""
    return merge(one, other)


def _said(error: Any) -> str:
    """Return what went wrong in a worker, in one line."""
    cause = getattr(error, "cause", error)
    return str(cause) if isinstance(cause, NeuralcovError) else f"{type(cause).__name__}: {_first_line(cause)}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]

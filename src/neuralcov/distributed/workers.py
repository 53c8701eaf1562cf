"""Workers that answer messages, and come and go: what an engine that runs them must offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Event:
    """Say what happened to a worker: it joined, it answered, or it was lost."""

    what: Literal["joined", "answered", "lost"]
    worker: int
    answer: Mapping[str, Any] = field(default_factory=dict)


class Workers(Protocol):
    """Carry messages to workers and what happens to them back; a worker has one message at a time."""

    def share(self, content: Any) -> Any:
        """Put content where all workers can read it; return what stands for it in messages."""

    def send(self, worker: int, message: Mapping[str, Any]) -> None:
        """Send a message to a worker that waits for one."""

    def receive(self) -> Event:
        """Wait for the next event; raise ``RankError`` if none will come."""

    def waiting(self) -> list[int]:
        """Return the workers that are there and have nothing to do."""

    def __len__(self) -> int:
        """Return how many workers are there."""

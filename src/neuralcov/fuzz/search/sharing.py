"""One campaign, many workers: the process that holds the campaign hands out waves and takes in what was found.

Every worker has the model and a copy of the campaign: corpus, counts and coverage. It is asked for one wave of a track
of its own, draws it from its copy, runs and judges it as a single process would, and sends back the record, the mutants
worth saving, and what the layers gave for those that its copy of coverage admitted. Here each of these is judged again,
in order, on the coverage that it meets: what others have shown meanwhile raises nothing any more. What is left is one
more wave of the log, and goes to all workers, who apply it before their next one. So copies differ from the campaign
only by the waves that have come since, and with one worker by none: the campaign is then the one of a single process.

For coverage that only adds up, of cells and kinds, a copy that lags behind admits all that the campaign would. A worker
that is lost costs the wave it was at; its track goes to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from neuralcov.core.errors import RankError
from neuralcov.coverage.packed_batches import pack_batch, unpack_batch
from neuralcov.distributed import Event, Workers
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.log import KEPT, WaveRecord
from neuralcov.fuzz.campaign.resume import OpenCampaign, copy_of
from neuralcov.fuzz.campaign.setup import CampaignSetup
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.search.wave import Search

# So many workers may be lost with no wave in between, and as many again for each that is there.
_LOSSES = 3
# Answers that come after the run they were asked for has ended are not mixed up with later ones.
_NUMBERS = count(1)


@dataclass(eq=False)
class SharedSearch:
    """Search with many workers, a wave of one of them at a time.

    Args:
        search: the campaign; its model is not run.
        workers: who runs waves.
        copy: gives the campaign as a message, for those who join.
    """

    search: Search
    workers: Workers
    copy: Callable[[], Mapping[str, Any]]
    _news: dict[int, Any] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)
    _tasks: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _last_used: dict[int, int] = field(default_factory=dict)
    _losses: int = 0

    def __post_init__(self) -> None:
        self._waiting = self.workers.waiting()

    @property
    def state(self) -> CampaignState:
        """Return what the campaign has found so far."""
        return self.search.state

    def advance(self, limit: int | None, clock: Callable[[], float]) -> tuple[WaveRecord, list[Fault]]:
        """Take in the next wave that a worker has done; return it and the faults it found."""
        while True:
            self._hand_out(limit)
            event = self.workers.receive()
            if event.what == "answered" and self._tasks.get(event.worker, (0,))[0] == event.answer["number"]:
                return self._take_in(event, clock)
            if event.what == "lost":
                self._lose(event.worker)
            elif event.worker not in self._waiting:
                self._waiting.append(event.worker)

    def _take_in(self, event: Event, clock: Callable[[], float]) -> tuple[WaveRecord, list[Fault]]:
        number, track, _ = self._tasks.pop(event.worker)
        self._waiting.append(event.worker)
        self._losses, self._last_used[track] = 0, number
        told = WaveRecord.from_bytes(event.answer["record"])
        record, observed = settle(self.search, told, event.answer["batch"], event.answer["sent"])
        record = replace(record, seconds=clock(), limit=told.limit)
        faults = self.state.apply(record)
        self._news[record.wave] = self.workers.share((record.to_bytes(), observed))
        return record, faults

    def _hand_out(self, limit: int | None) -> None:
        """Give every worker that waits a track to advance, as far as there is something to do."""
        for worker in sorted(self._waiting):
            allowed = None if limit is None else limit - self.state.counts.started - self._promised
            track = self._free_track(allowed)
            if track is None:
                return
            started = self.state.counts.started
            most = None if allowed is None else min(max(allowed, 0), self.search.settings.wave)
            self._waiting.remove(worker)
            message: dict[str, Any] = {"limit": None if most is None else started + most, "track": track}
            if worker not in self._known:
                message["campaign"] = self.copy()
                self._known[worker] = self.state.counts.waves
            message["news"] = [self._news[wave] for wave in range(self._known[worker], self.state.counts.waves)]
            self._known[worker] = self.state.counts.waves
            number = next(_NUMBERS)
            self._tasks[worker] = (number, track, most or 0)
            self.workers.send(worker, {**message, "number": number})
        self._forget()

    @property
    def _promised(self) -> int:
        """Return how many parents may be sampled in waves that are under way."""
        return sum(most for _, _, most in self._tasks.values())

    def _free_track(self, allowed: int | None) -> int | None:
        """Return the track that has waited longest, a new one where all are in use; none where nothing is to do."""
        lanes, taken = self.state.lanes, {track for _, track, _ in self._tasks.values()}
        free = [track for track in range(lanes.tracks + len(taken) + 1) if track not in taken]
        if allowed is not None and allowed <= 0:
            free = [track for track in free if track < lanes.tracks and not lanes.track_is_idle(track)]
        else:
            # New tracks are begun only where those there are do not suffice.
            free = [track for track in free if track < lanes.tracks] or free[:1]
        return min(free, key=lambda track: (self._last_used.get(track, 0), track), default=None)

    def _lose(self, worker: int) -> None:
        """Forget a worker and its wave."""
        self._tasks.pop(worker, None)
        self._known.pop(worker, None)
        if worker in self._waiting:
            self._waiting.remove(worker)
        self._losses += 1
        if self._losses > _LOSSES * (1 + len(self.workers)):
            raise RankError(
                f"{self._losses} workers were lost, one after the other, with no wave done in between: look at what "
                "they said last; what was committed is safe: mend it and resume"
            )

    def _forget(self) -> None:
        """Drop the waves that all workers know."""
        oldest = min(self._known.values(), default=self.state.counts.waves)
        for wave in [wave for wave in self._news if wave < oldest]:
            del self._news[wave]


def share(
    opened: OpenCampaign, setup: CampaignSetup, folder: CampaignFolder, workers: Workers, flush: Callable[[], None]
) -> SharedSearch:
    """Return a campaign's search as many workers do it.

    Args:
        opened: the campaign.
        setup: what makes it this one.
        folder: where it lies.
        workers: who runs waves.
        flush: wait until the log holds all waves.
    """

    def copy() -> Mapping[str, Any]:
        flush()
        return copy_of(opened, setup, folder).to_message()

    return SharedSearch(opened.search, workers, copy)


def settle(search: Search, told: WaveRecord, packed: bytes | None, sent: np.ndarray) -> tuple[WaveRecord, bytes | None]:
    """Judge a worker's wave on the campaign as it is now; coverage observes what still raises it.

    Args:
        search: the campaign.
        told: the wave as the worker judged it.
        packed: what the layers gave for the mutants that its copy admitted, and for excluded ones, which are counted.
        sent: the rows of these.

    Returns:
        The wave as it is to be applied, and what coverage observed, packed.
    """
    again = np.zeros(len(told.candidates), dtype=bool)
    observed = None
    if packed is not None:
        batch = unpack_batch(packed, search.coverage.device)
        found = search.coverage.admit(activations=batch, min_gain=search.settings.min_gain)
        again[sent[found.cpu().numpy()]] = True
        if found.any():
            observed = packed if bool(found.all()) else pack_batch(batch.take(found))
    table = search.decide_again(told, again)
    moved = told.kept[search.state.taken_along(told.candidates[told.kept])]
    rows, inputs = told.observed_inputs()
    record = replace(
        told,
        wave=search.state.counts.waves,
        candidates=table,
        inputs=told.inputs[table["saved"][told.saved] != 0],
        comparisons=told.comparisons[table["verdict"][moved] == KEPT],
        base=told.wave,
        observed=np.flatnonzero(again),
        unsaved=inputs[again[rows] & (table["saved"][rows] == 0)],
    )
    return record, observed

"""The lanes of a campaign: which parent advances in each, in tracks of as many lanes as a wave has.

A wave moves the parents of one track. One process needs a single track; where many search, each wave that is under way
has a track to itself, so that two of them never mutate the parent of the same lane.
"""

from __future__ import annotations

import numpy as np

NOBODY = -1


class Lanes:
    """Hold, by lane, the parent in it and how many mutants of it were made.

    Args:
        wave: lanes of a track.
    """

    def __init__(self, wave: int) -> None:
        self._wave = wave
        self._parents = np.full(wave, NOBODY, dtype=np.int32)
        self._tried = np.zeros(wave, dtype=np.int16)

    @property
    def tracks(self) -> int:
        """Return how many tracks there are: as many as waves were under way at once."""
        return len(self._parents) // self._wave

    @property
    def idle(self) -> bool:
        """Return whether no parent is under way."""
        return bool((self._parents == NOBODY).all())

    def track_is_idle(self, track: int) -> bool:
        """Return whether no parent is under way in a track."""
        return bool((self._parents[self._of(track)] == NOBODY).all())

    def first_busy(self, start: int) -> int | None:
        """Return the first track, from ``start`` on and round about, in which a parent is under way."""
        turn = ((np.arange(self.tracks) + start) % self.tracks).tolist()
        return next((track for track in turn if not self.track_is_idle(track)), None)

    def track_of(self, lanes: np.ndarray) -> int:
        """Return the track of the lanes that a wave names; the first for none."""
        return int(lanes[0]) // self._wave if len(lanes) else 0

    def parents_of(self, track: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the lanes of a track and the parents in them; a track that no wave has used yet is free."""
        lanes = np.arange(track * self._wave, (track + 1) * self._wave)
        if track >= self.tracks:
            return lanes, np.full(self._wave, NOBODY, dtype=np.int32)
        return lanes, self._parents[lanes]

    def tried(self, lanes: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        """Return how many mutants of the parents in some lanes were made before; none where one is sampled anew."""
        inside = lanes < len(self._tried)
        found = np.zeros(len(lanes), dtype=np.int16)
        found[inside] = self._tried[lanes[inside]]
        return np.where(fresh != 0, np.int16(0), found)

    def put(self, lanes: np.ndarray, parents: np.ndarray, tries: np.ndarray, done: np.ndarray) -> None:
        """Note which parents advanced, and free the lanes of those that are done with."""
        if len(lanes) and int(lanes.max()) >= len(self._parents):
            missing = (int(lanes.max()) // self._wave + 1) * self._wave - len(self._parents)
            self._parents = np.concatenate([self._parents, np.full(missing, NOBODY, dtype=np.int32)])
            self._tried = np.concatenate([self._tried, np.zeros(missing, dtype=np.int16)])
        self._parents[lanes], self._tried[lanes] = parents, tries
        self._parents[lanes[done]] = NOBODY

    def _of(self, track: int) -> slice:
        return slice(track * self._wave, (track + 1) * self._wave)

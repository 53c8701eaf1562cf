"""Write waves, faults and figures in the background, in order: the device need not wait for the disk."""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from neuralcov.core.errors import CampaignError
from neuralcov.core.files import append_line, write_json
from neuralcov.fuzz.campaign.folder import CampaignFolder, write_errors
from neuralcov.fuzz.campaign.log import WaveRecord
from neuralcov.fuzz.campaign.result import Stats
from neuralcov.fuzz.faults.fault import Fault, described
from neuralcov.fuzz.faults.pictures import save_input
from neuralcov.fuzz.faults.replay import Shrunk
from neuralcov.fuzz.faults.texts import difference
from neuralcov.fuzz.formats import InputFormat, Tokens
from neuralcov.fuzz.mutations import Mutation

_WAITING = 8


class Writer:
    """Write in a thread of its own, fed by a short queue.

    Args:
        folder: where to.
        mutations: to tell the story of a fault in words.
        input_format: to draw inputs.
        pictures: faults of one group that get files of their own; ``None`` for all.
        roots: the root inputs, to tell texts from their origins.
    """

    def __init__(
        self,
        folder: CampaignFolder,
        mutations: Sequence[Mutation],
        input_format: InputFormat,
        pictures: int | None,
        roots: Tensor | None = None,
    ) -> None:
        self._folder, self._mutations, self._input_format, self._roots = folder, mutations, input_format, roots
        self._pictures = pictures
        self._pictured: Counter[tuple[str, ...]] = Counter()
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(_WAITING)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="neuralcov fuzz writer", daemon=True)
        self._thread.start()

    def commit(self, record: WaveRecord, faults: Sequence[Fault]) -> None:
        """Append a wave to the log, then write its faults."""

        def job() -> None:
            self._folder.log.append(record.to_bytes())
            self._draw(faults)

        self._put(job)

    def restore(self, faults: Sequence[Fault]) -> None:
        """Count the faults of earlier waves and write the files that an interruption left out."""
        self._put(lambda: self._draw(faults))

    def add_stats(self, stats: Stats) -> None:
        """Add a line to ``stats.jsonl``."""

        def job() -> None:
            append_line(self._folder.path / "stats.jsonl", json.dumps(stats.to_json()))

        self._put(job)

    def flush(self) -> None:
        """Wait until everything is written."""
        self._jobs.join()
        self._complain()

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._jobs.put(None)
        self._thread.join()
        self._folder.log.close()
        self._complain()

    def _put(self, job: Callable[[], None]) -> None:
        self._complain()
        self._jobs.put(job)

    def _complain(self) -> None:
        if self._error is not None:
            raise CampaignError(
                f"{self._folder.path}: the campaign cannot be written ({self._error}); what was committed is safe: "
                "make room and resume"
            ) from self._error

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if job is None:
                    return
                if self._error is None:
                    job()
            except BaseException as error:
                self._error = error
            finally:
                self._jobs.task_done()

    def _draw(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self._pictured[fault.group] += 1
            if self._pictures is not None and self._pictured[fault.group] > self._pictures:
                continue
            if not (self._folder.faults / f"{fault.stem}.json").is_file():
                root = None if self._roots is None else self._roots[fault.root]
                write_story(self._folder, fault, self._mutations, self._input_format, root)


def save_shrunk(
    folder: CampaignFolder, shrunk: Sequence[Shrunk], mutations: Sequence[Mutation], input_format: InputFormat
) -> int:
    """Add to the stories of faults which mutations they need, with a picture where that is fewer; return how many."""
    with write_errors(folder.faults):
        folder.faults.mkdir(parents=True, exist_ok=True)
        for entry in shrunk:
            _add_needed(folder, entry, mutations, input_format)
    return sum(entry.smaller for entry in shrunk)


def _add_needed(
    folder: CampaignFolder, entry: Shrunk, mutations: Sequence[Mutation], input_format: InputFormat
) -> None:
    story = folder.faults / f"{entry.fault.stem}.json"
    if not story.is_file():
        write_story(folder, entry.fault, mutations, input_format)
    content = json.loads(story.read_text())
    content["needed"] = described(entry.steps, mutations)
    if entry.smaller:
        content["smaller file"] = save_input(folder.faults, f"{entry.fault.stem}-small", entry.input, input_format).name
    _write_story(story, content)


def write_story(
    folder: CampaignFolder,
    fault: Fault,
    mutations: Sequence[Mutation],
    input_format: InputFormat,
    root: Tensor | None = None,
) -> None:
    """Write the picture of a fault, then its story: where the story is, the picture is.

    The story of a text tells its origin and what changed, where the root input is given.
    """
    picture = save_input(folder.faults, fault.stem, fault.input, input_format)
    told: dict[str, Any] = {"file": picture.name, **fault.to_json(mutations)}
    if isinstance(input_format, Tokens) and root is not None:
        origin = input_format.text(root)
        told |= {"origin": origin, "difference": difference(origin, input_format.text(fault.input), None)}
    _write_story(folder.faults / f"{fault.stem}.json", told)


def _write_story(story: Path, content: dict[str, Any]) -> None:
    # Stories can be written again from the log, which is what must last.
    write_json(story, content, indent=1, durable=False)

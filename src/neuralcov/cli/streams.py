"""Make standard output and error fit to be written to, whoever reads them: nobody, a closed pipe, an old locale.

What a command computes does not depend on somebody reading what it says. So a pipe that was closed, as by ``head``,
swallows the rest, and a stream that was closed from the start leads nowhere; letters that a locale does not know
become question marks. ``--quiet`` and ``--json -`` are seen to here, for all commands alike.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import IO, Any

from typing_extensions import override

TERMINATED = 128 + signal.SIGTERM
QUIET = "--quiet", "-q"
_quiet = False


class _Patient(io.TextIOWrapper):
    """Write text for as long as somebody reads it, and go on in silence afterwards."""

    @override
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._to_nowhere()
            return len(text)

    @override
    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._to_nowhere()

    def _to_nowhere(self) -> None:
        """Let what is buffered, and all that comes, go to the null device."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        super().flush()


def prepare_streams() -> None:
    """Open what is closed, and put the program's own streams into patient ones."""
    _open_closed()
    sys.stdout = _patient(sys.stdout, sys.__stdout__, 1)
    sys.stderr = _patient(sys.stderr, sys.__stderr__, 2)


def is_quiet() -> bool:
    """Return whether nothing but errors is to be printed."""
    return _quiet


@contextmanager
def quieten(words: Sequence[str]) -> Iterator[list[str]]:
    """Take ``--quiet`` out of a command line, wherever it stands; where it does, standard output leads nowhere."""
    global _quiet
    rest = [word for word in words if word not in QUIET]
    if len(rest) == len(words):
        yield rest
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        _quiet = True
        try:
            yield rest
        finally:
            _quiet = False


@contextmanager
def json_to_output(words: Sequence[str]) -> Iterator[list[str]]:
    """Let ``--json -`` write to standard output, and what is said to people nowhere."""
    rest = [part for word in words for part in (word.split("=", 1) if word == "--json=-" else [word])]
    places = [at for at in range(1, len(rest)) if rest[at - 1 : at + 1] == ["--json", "-"]]
    if not places:
        yield rest
        return
    # Written whole or not at all: what reads a pipe gets no half of a result.
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "result.json"
        for at in places:
            rest[at] = str(written)
        try:
            with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
                yield rest
        finally:
            if written.is_file():
                sys.stdout.write(written.read_text(encoding="utf-8"))
                sys.stdout.flush()


@contextmanager
def end_on_terminate() -> Iterator[None]:
    """Have SIGTERM unwind what runs in a block, so that locks and temporary files go."""
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


def _open_closed() -> None:
    """Open the null device for streams that are closed: a file opened later would take their number, and their text."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)


def _patient(stream: IO[str] | None, own: IO[str] | None, number: int) -> Any:
    """Return a patient stream in place of the program's own; one that somebody else put there stays."""
    if stream is None:
        return _Patient(os.fdopen(number, "wb"), "utf-8", "replace", line_buffering=True)
    if stream is not own or type(stream) is not io.TextIOWrapper:
        return stream
    stream.flush()
    encoding, by_line, at_once = stream.encoding, stream.line_buffering, stream.write_through
    unknown = "replace" if number == 1 else "backslashreplace"
    return _Patient(stream.detach(), encoding, unknown, line_buffering=by_line, write_through=at_once)

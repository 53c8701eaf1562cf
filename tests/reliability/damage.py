"""Run as a program: damage files for some minutes and read them; whatever is no error in one sentence is kept.

    python -m tests.reliability.damage --seconds 600 --corpus build/corpus --processes 2

Workers are forked, so that a crash costs one of them. Damage follows from its number. A file that led to an error
nobody had met before is kept in the corpus and damaged in its turn. What is printed last, and written to ``--json``, is
JSON with the counts and all faults; the exit code is 1 if there was a traceback, a hang, a blow-up of memory, a file
outside the folder, or a value that differs.
"""

import argparse
import base64
import collections
import hashlib
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

from neuralcov.core.errors import NeuralcovError
from tests.reliability.mutation import dice_of
from tests.reliability.subjects import subjects

# Seconds of CPU time, and on a busy machine of the clock; after the last the worker is killed: it hangs outside Python.
HANG, BLOCKED, SILENT = 5, 60, 120
# More than any of these files needs, less than one that lies about a size would take.
MEMORY = 1 << 30


class Hang(BaseException):
    """Say that a file took too long to read."""


def _ring(number, frame):
    raise Hang


def judge(subject, name, content, folder, sound):
    """Read a damaged file; give what it ended in, and whether that is a fault."""
    signal.setitimer(signal.ITIMER_PROF, HANG)
    signal.setitimer(signal.ITIMER_REAL, BLOCKED)
    try:
        found = subject.read(name, content, folder)
    except Hang:
        return f"hang over {HANG} s", True
    except MemoryError as error:
        return _signature(error), not isinstance(error, NeuralcovError)
    except (NeuralcovError, OSError) as error:
        return _signature(error), "\n" in str(error).strip()
    except BaseException as error:
        return _signature(error), True
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if sound is not None and repr(found) != sound:
        return "a value that differs", True
    return "read", False


def _signature(error):
    frame, last = error.__traceback__, None
    while frame is not None:
        last = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
        frame = frame.tb_next
    said = re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "#", str(error))[:80]
    return f"{type(error).__name__} at {last}: {said}"


def escaped(top, folder):
    """Return what lies beside the folder, where nothing may be written."""
    return [path.name for path in top.iterdir() if path != folder]


def work(subject, numbers, corpus, pipe, until):
    """Damage and read, one number after the other until the time is up, and tell of every one."""
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, _ring)
    warnings.simplefilter("ignore")
    top = Path(tempfile.mkdtemp(prefix="damage-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    folder = top / "folder"
    folder.mkdir()
    names = sorted(subject.examples)
    sound = {}
    for name in names:
        with _quiet():
            found = None if subject.signed else _sound(subject, name, folder)
        sound[name] = None if found is None else repr(found)
        _empty(folder)
    kept = [(path.name.split("~")[0].replace("!", "/"), path.read_bytes()) for path in sorted(corpus.glob("*~*"))]
    kept = [(name, content) for name, content in kept if name in subject.examples]
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
    for number in numbers:
        if time.monotonic() > until:
            break
        dice = dice_of(subject.name, number)
        # Whatever was kept may hold other values than the sound file, and say so: only errors are looked at then.
        old = bool(kept) and not subject.signed and dice.random() < 0.3
        name, content = dice.choice(kept) if old else (chosen := dice.choice(names), subject.examples[chosen])
        content = subject.damage(name, content, dice)
        with _quiet():
            ended, fault = judge(subject, name, content, folder, sound[name])
        outside = escaped(top, folder)
        if outside:
            ended, fault = f"wrote {outside} outside the folder", True
        _empty(folder)
        pipe.write(json.dumps([number, name, ended, fault, content.hex() if fault or ended != "read" else ""]) + "\n")
        pipe.flush()
    shutil.rmtree(top)


def _sound(subject, name, folder):
    try:
        return subject.read(name, subject.examples[name], folder)
    except (NeuralcovError, OSError):
        return None  # an archive that is hostile as it is


def _empty(folder):
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


class _quiet:
    """Keep what libraries print to themselves."""

    def __enter__(self):
        self._out, self._err = sys.stdout, sys.stderr
        self._null = open(os.devnull, "w")
        sys.stdout = sys.stderr = self._null

    def __exit__(self, *_):
        sys.stdout, sys.stderr = self._out, self._err
        self._null.close()


def piece(subject, numbers, corpus, tally, met, until=float("inf")):
    """Have a forked worker damage files until it is done, or crashed; return where to go on, and the faults."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        try:
            with os.fdopen(writing, "w") as pipe:
                work(subject, numbers, corpus, pipe, until)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    os.close(writing)
    done, faults = numbers.start, []
    for line in _lines(reading, process):
        number, name, ended, fault, content = json.loads(line)
        done = number + 1
        tally[ended] += 1
        if ended not in met and ended != "read":
            met.add(ended)
            digest = hashlib.sha256(ended.encode()).hexdigest()[:10]
            (corpus / f"{name.replace('/', '!')}~{digest}").write_bytes(bytes.fromhex(content))
            if fault:
                told = base64.b64encode(bytes.fromhex(content)).decode()
                faults.append({"subject": subject.name, "number": number, "file": name, "fault": ended, "base64": told})
    _, status = os.waitpid(process, 0)
    if status:
        ended = f"the process ended with {os.waitstatus_to_exitcode(status)}"
        faults.append({"subject": subject.name, "number": done, "file": "", "fault": ended, "base64": ""})
        done += 1
    return done, faults


def _lines(reading, process):
    """Yield the lines that a worker writes; kill one that says nothing for too long."""
    buffer = b""
    while True:
        ready, _, _ = select.select([reading], [], [], SILENT)
        if not ready:
            os.kill(process, signal.SIGKILL)
        chunk = os.read(reading, 1 << 20)
        if not chunk:
            os.close(reading)
            return
        *lines, buffer = (buffer + chunk).split(b"\n")
        yield from lines


def damage(seconds, corpus, only=None, start=0, size=1000):
    """Damage files until the time is up, every kind at least once; give the counts and all faults."""
    torch.set_num_threads(1)
    until = time.monotonic() + seconds
    chosen = [subject for subject in subjects() if only is None or subject.name in only]
    place = {subject.name: start for subject in chosen}
    tallies = {subject.name: collections.Counter() for subject in chosen}
    met, faults, rounds = set(), [], 0
    while not rounds or time.monotonic() < until:
        for subject in chosen:
            folder = corpus / re.sub(r"\W+", "-", subject.name)
            folder.mkdir(parents=True, exist_ok=True)
            numbers = range(place[subject.name], place[subject.name] + size)
            late = float("inf") if not rounds else until
            place[subject.name], found = piece(subject, numbers, folder, tallies[subject.name], met, late)
            for fault in found:
                print("FAULT", fault["subject"], fault["number"], fault["file"], fault["fault"], flush=True)
            faults += found
        rounds += 1
    return tallies, faults


def _one_of_many(corpus, writing, arguments):
    with os.fdopen(writing, "w") as pipe:
        tallies, faults = damage(arguments.seconds, corpus, arguments.only, arguments.start)
        json.dump([tallies, faults], pipe)


def main(arguments):
    """Damage files in several processes; give the counts and all faults of all of them."""
    # Each has numbers of its own, and all have one corpus.
    readers = []
    for number in range(arguments.processes):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            arguments.start += number * 10**9
            _one_of_many(arguments.corpus, writing, arguments)
            os._exit(0)
        os.close(writing)
        readers.append(os.fdopen(reading))
    tallies, faults = collections.defaultdict(collections.Counter), []
    for reader in readers:
        theirs, found = json.loads(reader.read() or '[{}, [{"fault": "a process of the loop ended without a word"}]]')
        for name, tally in theirs.items():
            tallies[name].update(tally)
        faults += found
    counts = {
        name: {"files": sum(tally.values()), "read": tally["read"], "errors": len(tally) - ("read" in tally)}
        for name, tally in tallies.items()
    }
    return {"files": sum(entry["files"] for entry in counts.values()), "faults": faults, **counts}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--only", action="append")
    parser.add_argument("--start", type=int, default=int(time.time()) * 1000, help="number of the first damage")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = json.dumps(main(chosen), indent=1)
    print(found)
    if chosen.json:
        chosen.json.write_text(found)
    sys.exit(bool(json.loads(found)["faults"]))

"""How a command ends: an exit code and one sentence for every error.

0 fine; 1 the answer is no (gate not met, faults found where asked, or still there; cells failed); 2 wrong use, or a
file or model that does not fit; 3 a bug of ours; 4 the machine failed (disk, memory, another process, time); 130
interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import typer

import neuralcov
from neuralcov.cli.console import complain
from neuralcov.core.errors import NeuralcovError, RankError

FINE, NO, WRONG_USE, BUG, MACHINE, INTERRUPTED = 0, 1, 2, 3, 4, 130
# Set to anything, it shows where an error came from.
TRACEBACK = "NEURALCOV_TRACEBACK"

_OF_THE_MACHINE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EFBIG,
        errno.EROFS,
        errno.ETIMEDOUT,
        errno.ESTALE,
    }
)


def end(error: BaseException) -> NoReturn:
    """Leave the program as an error demands, with one sentence on standard error."""
    if isinstance(error, SystemExit):
        sys.exit(_code(error))
    if isinstance(error, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    code, sentence = ending(error)
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    complain(sentence)
    sys.exit(code)


def ending(error: BaseException) -> tuple[int, str]:
    """Say how a command ends that met an error: the exit code, and what a person should read.

    >>> ending(KeyError("x"))[0], ending(MemoryError())[0], ending(FileNotFoundError(2, "No such file", "a.npz"))
    (3, 4, (2, 'a.npz: No such file'))
    """
    # Imported here, since a command that only shows its help needs no torch.
    from neuralcov.sources.models import raised_by_model

    code = MACHINE if any(_is_of_the_machine(cause) for cause in _causes(error)) else WRONG_USE
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    kind = type(error).__name__
    what = f"{kind}: {first}" if first else kind
    if isinstance(error, NeuralcovError):
        return code, str(error)
    if isinstance(error, OSError):
        return code, f"{error.filename or 'a file or connection'}: {error.strerror or what}"
    if code == MACHINE:
        return code, f"the machine gave out ({what}); a smaller --batch-size or --batch needs less memory"
    if raised_by_model(error):
        return code, f"the model failed with {what}; check that the inputs are what it takes"
    if _is_of_the_user(error):
        return code, f"code of your own failed with {what}; {TRACEBACK}=1 shows where"
    return BUG, f"this is a bug in neuralcov: {what}; please report it with what {TRACEBACK}=1 shows"


def _code(stop: SystemExit) -> int:
    """Give the exit code that typer chose, but for two that it takes for a no."""
    if isinstance(stop.__context__, typer.Abort):
        return BUG if isinstance(stop.__context__.__cause__, EOFError) else INTERRUPTED
    if isinstance(stop.__context__, OSError) and stop.__context__.errno == errno.EPIPE:
        return FINE  # whoever read the output has gone, for example head
    return stop.code if isinstance(stop.code, int) else FINE if stop.code is None else BUG


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_of_the_machine(error: BaseException) -> bool:
    import torch

    from neuralcov.core.memory import out_of_memory

    if isinstance(error, NeuralcovError):
        # A memory= that was set too low is the user's to change.
        return isinstance(error, RankError)
    if out_of_memory(error) or isinstance(error, (TimeoutError, ConnectionError)):
        return True
    if isinstance(error, OSError):
        return error.errno in _OF_THE_MACHINE
    return torch.distributed.is_available() and isinstance(error, torch.distributed.DistError)


def _is_of_the_user(error: BaseException) -> bool:
    """Tell whether the innermost code that is neither Python's nor a library's lies outside this package."""
    ours = Path(neuralcov.__file__).parent
    libraries = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = frame.f_code.co_filename
        path = Path(name).resolve()
        if path.is_relative_to(ours):
            return False
        if not name.startswith("<") and not any(path.is_relative_to(place) for place in libraries):
            return True
    return False

"""``neuralcov verify``: measure once more what an evidence file says, and compare.

A file that somebody sent may name anything, and building a model or reading data calls what is named. So model and data
come from the command line; names in the file are used only where a person says ``--trust``. Numbers, globs and the
settings of installed criteria are used as they stand there.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Any

import typer
from rich.text import Text
from torch import nn

from neuralcov.cli import options
from neuralcov.cli.console import note, output
from neuralcov.cli.exits import NO
from neuralcov.cli.measuring import Names, is_share, measure_named
from neuralcov.cli.portable import LEFT_OUT
from neuralcov.core.errors import InputError, MismatchError, NeuralcovError, StateFileError
from neuralcov.core.files import name_of, read_bytes, write_json
from neuralcov.coverage.evidence import criteria_of
from neuralcov.coverage.provenance import model_id, short
from neuralcov.report.verification import verification_lines
from neuralcov.results.evidence import Evidence, read_evidence
from neuralcov.results.verification import columns_asked, verdicts_again
from neuralcov.results.verification import verify as verify_results

# What may be called, or read from a place of the file's choosing.
_NAMED = ("model", "weights", "data", "calibrate", "held_out", "init")


def verify(
    file: Annotated[str, typer.Argument(help="An evidence file (.json).")],
    model: Annotated[str | None, typer.Argument(help="The model, as for measure.")] = None,
    data: Annotated[str | None, typer.Option(help="The suite.")] = None,
    weights: options.Weights = None,
    calibrate: Annotated[str | None, typer.Option(help="Training data, or a saved calibration (.ncal).")] = None,
    held_out: Annotated[str | None, typer.Option(help="Training data that were held out, if by a name.")] = None,
    init: Annotated[str | None, typer.Option(help="Data to update with first, if the file did.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Otherwise the file's.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; otherwise the file's.")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Use the names in the file; they may call code.")] = False,
    json: Annotated[str | None, typer.Option(help="Write the comparison as JSON.")] = None,
) -> None:
    """Measure once more what an evidence file says: exit 0 if it agrees, 1 if it differs, 2 if it does not fit."""
    name = name_of(file)
    stated = read_evidence(read_bytes(file), name)
    given = {"model": model, "data": data, "calibrate": calibrate, "held_out": held_out, "init": init}
    given["weights"] = None if weights is None else str(weights)
    try:
        stored = _stored_names(stated)
        names = _names(stored, given, name, trust=trust)
        if batch_size is not None:
            names = replace(names, batch_size=batch_size)
        criteria, slices = criteria_of(stated, name), columns_asked(stated)
    except NeuralcovError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StateFileError(f"{name}: does not say how it was measured ({error!r})") from error
    if device is not None:
        names = replace(names, device=device)
    measured = measure_named(names, criteria, slices=slices, expect=lambda net: _require_model(stated, net, name))
    for sentence in measured.result.notes:
        note(sentence)
    found = verify_results(stated, measured.coverage.evidence(measured.result), name)
    found = replace(found, figures=(*found.figures, *verdicts_again(stated, measured.result)))
    if json is not None:
        write_json(json, found.to_json())
    console = output()
    for line in verification_lines(found, stated):
        console.print(Text(line, "bold red" if line.startswith("DIFFERS") else ""), highlight=False)
    if not found.agrees:
        raise typer.Exit(NO)


def _require_model(stated: Evidence, net: nn.Module, name: str) -> None:
    """Refuse another model before it is run."""
    told, found = stated.identity["model"]["id"], model_id(net)
    if told != found:
        raise MismatchError(f"{name} was measured on weights {short(told)}, this model has {short(found)}")


def _stored_names(stated: Evidence) -> Names:
    """Return how the file says it was measured; refuse types that options do not have."""
    told: dict[str, Any] = stated.procedure["names"]
    if not told:
        raise ValueError("the measurement was not made by a command")
    found = Names(**told)
    for field in fields(Names):
        kind = {"batch_size": int, "cuda_graph": bool}.get(field.name, str)
        value = getattr(found, field.name)
        if type(value) is not kind and not (value is None and field.default is None):
            raise TypeError(f"{field.name} is {value!r}")
    if found.batch_size < 1:
        raise ValueError(f"batch_size is {found.batch_size}")
    return found


def _names(stored: Names, given: dict[str, str | None], name: str, *, trust: bool) -> Names:
    """Return what a person named; what only the file names is refused, unless that is trusted."""
    chosen = dict(given)
    for key in _NAMED:
        told = getattr(stored, key)
        if told is None or chosen[key] is not None:
            continue
        if key == "weights" and given["model"] is not None:
            continue  # a model that a person names comes with the weights that they name
        how = "on the command line" if key == "model" else f"as --{key.replace('_', '-')}"
        if key == "held_out" and is_share(told):
            pass  # a number calls nothing
        elif LEFT_OUT in told:
            raise InputError(f"{name} names the {key} {told}, whose folder it leaves out: give it {how}")
        elif not trust:
            raise InputError(f"{name} names the {key} {told}; give it {how}, or --trust to use the name in the file")
        chosen[key] = told
    for key in ("calibrate", "held_out", "init"):
        if chosen[key] is not None and getattr(stored, key) is None:
            raise InputError(f"--{key.replace('_', '-')}: {name} was measured without; leave it out")
    return replace(stored, **chosen)  # type: ignore[arg-type]

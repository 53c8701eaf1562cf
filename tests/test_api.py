"""The public names and signatures, against ``tests/api.txt``: none goes or changes unnoticed.

After a change that is meant: ``python -m tests.test_api > tests/api.txt``.
"""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ("neuralcov", "neuralcov.criteria", "neuralcov.testing", "neuralcov.fuzz")
RENEW = "python -m tests.test_api > tests/api.txt"


def api():
    """One line for every public name, with names and defaults of its arguments."""
    exported = [(module, name) for module in MODULES for name in sorted(importlib.import_module(module).__all__)]
    first = {}
    for module, name in exported:
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value) or inspect.isfunction(value):
            first.setdefault(value, f"{module}.{name}")
    for module, name in exported:
        value, full = getattr(importlib.import_module(module), name), f"{module}.{name}"
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            yield f"{full}: {type(value).__name__}"
        elif first[value] != full:
            yield f"{full} = {first[value]}"
        elif inspect.isclass(value):
            yield f"class {full}{signature(value)}"
            inherited = {line for base in value.__mro__[1:] if base in first for line in members(base)}
            yield from (f"    {line}" for line in members(value) if line not in inherited)
        else:
            yield f"{full}{signature(value)}"


def members(cls):
    """Public members of a class, but for arguments of its constructor."""
    arguments = signature(cls)
    for name in sorted(dir(cls)):
        raw = inspect.getattr_static(cls, name)
        if name.startswith("_") or not is_ours(cls, name):
            continue
        value = getattr(cls, name)
        if inspect.isfunction(raw) or isinstance(raw, (classmethod, staticmethod)):
            kind = f"{type(raw).__name__} " if isinstance(raw, (classmethod, staticmethod)) else ""
            yield f"{kind}{name}{signature(value)}"
        elif not re.search(rf"[(,* ]{name}[=,)]", arguments):
            yield name


def is_ours(cls, name):
    owner = next(base for base in cls.__mro__ if name in vars(base))
    return owner.__module__.partition(".")[0] == "neuralcov"


def signature(value):
    """Names, kinds and defaults of arguments; annotations are left to the type checker."""
    try:
        found = inspect.signature(value)
    except ValueError:
        return "(…)"
    bare = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
    text = str(found.replace(parameters=bare, return_annotation=found.empty))
    return re.sub(r"<(?:function|class|object) ?'?([\w.]+).*?>", r"\1", re.sub(r" at 0x[0-9a-f]+", "", text))


def test_the_public_api_is_what_it_was():
    before = (Path(__file__).parent / "api.txt").read_text(encoding="utf-8").splitlines()
    now = list(api())
    gone, new = ([line for line in some if line not in others] for some, others in ((before, now), (now, before)))
    assert now == before, f"gone: {gone}; new: {new}; if that is meant: {RENEW}"


@pytest.mark.parametrize("package", ["rich", "PIL", "kornia", "typer", "triton"])
def test_using_neuralcov_does_not_import(package):
    script = "import sys, torch; before = set(sys.modules); import neuralcov as nc; nc.Coverage, nc.LCC, nc.rank; "
    script += "nc.Fuzzer; print(*set(sys.modules) - before)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert package not in {name.partition(".")[0] for name in ended.stdout.split()}


if __name__ == "__main__":
    print("\n".join(api()))

"""Names that a package imports only when they are asked for, so that importing the package costs nothing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def export_lazily(package: str, homes: Mapping[str, str], folders: Sequence[str] = ()) -> None:
    """Let a package find what it exports when it is asked for (PEP 562).

    A function may have the name of the folder it comes from, such as ``rank``. Importing the folder binds its name to
    the folder in the package, so that such names are properties of the package's own class, which stand above that.

    Args:
        package: the package that calls this, while it is imported.
        homes: by name, the module that defines it.
        folders: parts of the package that are attributes of it without having been imported.
    """

    def find(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        if name in folders:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(module), *homes, *folders})

    module = sys.modules[package]
    vars(module).update(__getattr__=find, __dir__=names)
    hidden = [name for name, home in homes.items() if _is_in(home, f"{package}.{name}")]
    covered: dict[str, Any] = {name: _first(name, find) for name in hidden}
    if covered:
        # Sent to another process, within a function that uses it, a package is a name there too.
        by_name = {"__reduce__": lambda module: (importlib.import_module, (package,))}
        module.__class__ = type("LazyPackage", (ModuleType,), {**covered, **by_name})


def _first(name: str, find: Callable[[str], Any]) -> property:
    """Return a property that finds a name, and takes no notice of the folder of that name."""
    return property(lambda module: find(name), lambda module, folder: None)


def _is_in(module: str, folder: str) -> bool:
    return module == folder or module.startswith(f"{folder}.")

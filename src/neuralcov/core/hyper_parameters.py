"""Hyper-parameters of criteria as dataclass fields: their order, and which of them limit resources alone."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuralcov.core.criterion import Criterion


def resource(default: Any) -> Any:
    """Declare a hyper-parameter that limits memory or time and leaves the value's meaning as it is."""
    return dataclasses.field(default=default, kw_only=True, metadata={"resource": True})


def is_resource(parameter: dataclasses.Field[Any]) -> bool:
    """Return whether a hyper-parameter was declared by ``resource``."""
    return bool(parameter.metadata.get("resource"))


@cache
def parameters_of(cls: type[Criterion[Any]]) -> list[dataclasses.Field[Any]]:
    """Return the hyper-parameters of a criterion, positional ones first."""
    fields = [field for field in dataclasses.fields(cls) if field.name != "learnt"]
    return sorted(fields, key=lambda field: field.kw_only is True)

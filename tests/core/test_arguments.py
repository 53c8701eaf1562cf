"""Numbers that criteria are given: out of range, of another kind, or beyond what a machine's number holds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from neuralcov.core import arguments as checks
from neuralcov.core.errors import HyperParameterError


@dataclass
class Owner:
    given: Any


@pytest.mark.parametrize("given", [10**400, -(10**400), float("inf"), float("nan"), True, "3", None, 2j])
def test_what_is_no_finite_number(given):
    with pytest.raises(HyperParameterError, match=r"^Owner\(given=.*\): given must be a finite number$"):
        checks.number(Owner(given), "given")


@pytest.mark.parametrize(
    ("limits", "rule"),
    [({"above": 3}, "above 3"), ({"at_least": 4}, "at least 4"), ({"below": 3}, "below 3"), ({"at_most": 2}, "most 2")],
)
def test_limits(limits, rule):
    with pytest.raises(HyperParameterError, match=rule):
        checks.number(Owner(3), "given", **limits)
    (bound, limit), *_ = limits.items()
    checks.number(Owner(limit + {"above": 1, "at_least": 0, "below": -1, "at_most": 0}[bound]), "given", **limits)


def test_numbers_of_numpy_become_plain():
    owner = Owner(np.float32(0.5))
    checks.number(owner, "given")
    assert type(owner.given) is float

"""Cases for the laws as Hypothesis draws them."""

from __future__ import annotations

from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CalibrationError
from neuralcov.testing.cases import FLAVOURS, LawCase, make_case


@st.composite
def cases(draw: st.DrawFn, criterion: Criterion[Any]) -> LawCase:
    """Return cases for ``criterion``, calibrated on data of the same kind as the suite."""
    widths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    flavour = draw(st.sampled_from(FLAVOURS))
    seed = draw(st.integers(0, 2**32 - 1))
    sizes = draw(st.integers(8, 30)), draw(st.integers(1, 14)), draw(st.integers(1, 5))
    padded = draw(st.booleans())
    try:
        return make_case(criterion, widths, flavour, seed, sizes, padded=padded)
    except CalibrationError:
        # A network whose only layer never varies teaches some criteria nothing, and they say so.
        if flavour == "constant" and len(widths) == 1:
            reject()
        raise

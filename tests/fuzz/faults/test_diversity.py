import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.fuzz.faults.quality import classes_reached, scaled_entropy


@given(st.lists(st.integers(0, 9), max_size=60))
def test_against_the_formula(predicted):
    counts = {label: predicted.count(label) for label in set(predicted)}
    assert classes_reached(predicted) == classes_reached({**counts, 99: 0}) == len(counts)
    shares = [count / len(predicted) for count in counts.values()]
    plain = -sum(share * math.log(share) for share in shares)
    wanted = plain / math.log(len(counts)) if len(counts) > 1 else 0
    assert scaled_entropy(predicted) == pytest.approx(wanted)
    assert -1e-12 <= scaled_entropy(predicted) <= 1 + 1e-12

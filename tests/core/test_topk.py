import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.core.topk import top_k

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-45, -1e-45]),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(rows=st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=3), k=st.integers(1, 6))
def test_equals_a_stable_sort(rows, k, dtype):
    values = torch.tensor(rows, dtype=dtype)
    expected = np.argsort(-values.double().numpy(), axis=1, kind="stable")[:, : min(k, 4)]
    assert top_k(values, k).tolist() == expected.tolist()

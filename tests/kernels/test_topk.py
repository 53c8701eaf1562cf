import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.kernels.operations import among_top_k

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-45, -1e-45]),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(rows=st.lists(st.lists(NUMBERS, min_size=4, max_size=4), max_size=3), k=st.integers(1, 6))
def test_equals_a_stable_sort(rows, k, dtype):
    values = torch.tensor(rows, dtype=dtype).reshape(-1, 4)
    order = np.argsort(-values.double().numpy(), axis=1, kind="stable")[:, : min(k, 4)]
    expected = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(expected, order, True, axis=1)
    assert among_top_k(values, k).tolist() == expected.tolist()


def test_half_precision_ties():
    values = torch.randn(20, 500, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    order = np.argsort(-values.numpy(), axis=1, kind="stable")[:, :50]
    assert among_top_k(values, 50).sum(1).tolist() == [50] * 20
    assert all(among_top_k(values, 50)[i, row].all() for i, row in enumerate(order))


@pytest.mark.parametrize("width", [1, 7, 64, 700])
def test_a_cpu_finds_what_every_device_finds(width):
    """NumPy's way on a CPU gives the ticks that PyTorch's gives, ties and rows of several axes included."""
    values = torch.randint(-5, 5, (9, 3, width), generator=torch.Generator().manual_seed(0)) / 4
    for k in (1, 2, 63):
        least = torch.topk(values, min(k, width), dim=-1).values.amin(-1, keepdim=True)
        found = among_top_k(values, k)
        assert found.sum(-1).unique().tolist() == [min(k, width)]
        assert found[values > least].all()
        assert not found[values < least].any()

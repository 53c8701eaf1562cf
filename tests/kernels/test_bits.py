import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.kernels.hashing import count_bits, pack, unpack, words_for


@given(st.integers(1, 200), st.integers(0, 4), st.integers(0, 2**31))
def test_packing_and_counting(width, rows, seed):
    bits = torch.rand(rows, 2, width, generator=torch.Generator().manual_seed(seed)) < 0.5
    packed = pack(bits)
    assert packed.shape == (rows, 2, words_for(width))
    assert torch.equal(unpack(packed, width), bits)
    assert torch.equal(count_bits(packed).sum(-1), bits.sum(-1))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_counting_equals_python(words):
    expected = [int(np.int64(word).view(np.uint64)).bit_count() for word in words]
    assert count_bits(torch.tensor(words, dtype=torch.int64)).tolist() == expected

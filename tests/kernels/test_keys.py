import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.kernels.hashing import lexical_order, neuron_words, ordered_together

CPU = torch.device("cpu")
# Few first words, so that different keys often share one.
KEYS = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), max_size=12)


def keys(pairs):
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)


@given(st.lists(KEYS, min_size=1, max_size=5))
def test_tables_ordered_together_are_ordered_each(tables):
    tables = [keys(pairs) for pairs in tables]
    for one, expected in zip(ordered_together(tables), tables, strict=True):
        assert torch.equal(one, lexical_order(expected))


def test_words_look_random_and_differ_everywhere():
    words = torch.cat([neuron_words(layer, 2048, CPU).flatten() for layer in range(20)])
    assert len(words.unique()) == len(words)
    ones = sum(((words >> bit) & 1).double().mean() for bit in range(64)) / 64
    assert abs(ones - 0.5) < 0.002
    assert torch.equal(neuron_words(3, 5, CPU), neuron_words(3, 9, CPU)[:5])

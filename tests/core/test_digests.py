"""Content keys: equal for equal bytes, whatever batch, device or padding; different for any other bytes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuralcov as nc
from neuralcov.core.digests import content_keys


def drawn(size, *shape, dtype=torch.float32):
    return torch.randn(size, *shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@given(st.integers(1, 20), st.integers(1, 20))
def test_batching_does_not_matter(size, cut):
    inputs = drawn(size, 3, 5)
    parts = [content_keys([part]) for part in torch.split(inputs, cut)]
    assert torch.equal(content_keys([inputs]), torch.cat(parts))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_every_bit_counts(dtype):
    inputs = (drawn(1, 7) * 50).to(dtype)
    raw = inputs.view(torch.uint8)
    keys = {tuple(content_keys([inputs])[0].tolist())}
    for byte in range(raw.shape[1]):
        for bit in range(1 if dtype == torch.bool else 8):
            changed = raw.clone()
            changed[0, byte] ^= 1 << bit
            keys.add(tuple(content_keys([changed.view(dtype)])[0].tolist()))
    assert len(keys) == 1 + raw.shape[1] * (1 if dtype == torch.bool else 8)


def test_each_word_tells_a_hundred_thousand_inputs_apart():
    inputs = torch.arange(100_000, dtype=torch.float32)[:, None] / 16
    keys = content_keys([inputs])
    assert len(keys[:, 0].unique()) == len(keys[:, 1].unique()) == 100_000
    # Folds take the key modulo ten: all of them come up about equally often.
    counts = torch.bincount(torch.remainder(keys[:, 0], 10), minlength=10)
    assert counts.min() > 9_700


def test_padding_behind_the_end_and_memory_format_do_not_matter():
    tokens = torch.randint(1, 99, (4, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(4, 6, dtype=torch.int64)
    longer = [torch.nn.functional.pad(part, (0, 3)) for part in (tokens, mask)]
    assert torch.equal(content_keys([tokens, mask]), content_keys(longer))
    images = drawn(4, 3, 8, 8)
    assert torch.equal(content_keys([images]), content_keys([images.to(memory_format=torch.channels_last)]))


def test_the_parts_of_an_input_have_places_of_their_own():
    one, other = drawn(2, 4), drawn(2, 4) + 1
    assert not torch.equal(content_keys([one, other]), content_keys([other, one]))


def test_activations_have_keys_too():
    batch = nc.Activations({"a": drawn(5, 3), "b": drawn(5, 2)})
    double = nc.Activations({name: outputs.double() for name, outputs in batch.layers.items()})
    assert torch.equal(batch.content_keys, double.content_keys)
    assert torch.equal(batch.take(slice(1, 3)).content_keys, batch.content_keys[1:3])
    known = nc.Activations(batch.layers, keys=torch.arange(10).reshape(5, 2))
    assert known.take(torch.tensor([4, 0])).content_keys.tolist() == [[8, 9], [0, 1]]
    assert nc.Activations.cat([known, known.take(slice(0, 1))]).keys.tolist()[-1] == [0, 1]
    assert nc.Activations.cat([known, batch]).keys is None

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CalibrationError
from neuralcov.core.paths import (
    Paths,
    all_neurons,
    critical_neurons,
    critical_paths,
    explained,
    pack,
    paths_name,
    unpack,
)
from neuralcov.core.reference import Reference


def brute_force(relevance, alpha):
    """Neurons of one layer by falling relevance, taken until they reach alpha of what is positive."""
    order = sorted(range(len(relevance)), key=lambda i: (-relevance[i], i))
    total = 0.0
    for i in order:
        total += max(float(relevance[i]), 0.0)
    taken, reached = set(), 0.0
    for i in order:
        if reached >= alpha * total or relevance[i] <= 0:
            break
        taken.add(i)
        reached += float(relevance[i])
    return taken


@given(
    st.lists(st.floats(-3, 3, width=32) | st.sampled_from([0.0, -0.0, 1.0, 0.5]), min_size=1, max_size=9),
    st.sampled_from([0.01, 0.3, 0.5, 0.7, 0.75, 0.999, 1.0]),
)
def test_critical_neurons_equal_brute_force(values, alpha):
    relevance = np.array(values, np.float32)
    expected = brute_force(relevance, alpha)
    found = critical_neurons(torch.from_numpy(relevance)[None], alpha)[0]
    assert set(found.nonzero()[:, 0].tolist()) == expected
    double = critical_neurons(torch.from_numpy(relevance)[None].double(), alpha)[0]
    assert torch.equal(double, found)


def test_ties_go_to_the_lower_index():
    found = critical_neurons(torch.tensor([[1.0, 2.0, 1.0, 2.0, 1.0]]), 0.6)
    assert found.tolist() == [[True, True, False, True, False]]


def test_the_whole_path_ends_with_the_last_positive_neuron():
    relevance = torch.rand(50, 300, generator=torch.Generator().manual_seed(0)) - 0.5
    assert torch.equal(critical_neurons(relevance, 1.0), relevance > 0)


def test_without_positive_relevance_the_path_is_empty():
    assert not critical_neurons(torch.tensor([[0.0, -1.0], [-0.0, 0.0]]), 0.7).any()


@given(st.integers(0, 5), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_packing(rows, bits, seed):
    values = np.random.default_rng(seed).random((rows, bits)) < 0.5
    packed = pack(torch.from_numpy(values))
    np.testing.assert_array_equal(packed.numpy(), np.packbits(values, axis=1))
    np.testing.assert_array_equal(unpack(packed, bits).numpy(), values)


def batch(size=12, seed=0, widths=(5, 3), **changes):
    generator = torch.Generator().manual_seed(seed)
    layers = {f"layer{i}": torch.randn(size, width, generator=generator) for i, width in enumerate(widths)}
    fields = {
        "layers": layers,
        "labels": torch.randint(3, (size,), generator=generator),
        "predictions": torch.randint(3, (size,), generator=generator),
        "relevance": {name: torch.randn(v.shape, generator=generator) for name, v in layers.items()},
    }
    return Activations(**{**fields, **changes})


def learnt(*batches, alpha=0.7, activations=False):
    name = paths_name(alpha, activations=activations)
    reference = Reference.empty(batches[0].layout, {name})
    for each in batches:
        reference = reference.observe(each)
    return reference.find(name)


def test_paths_of_correctly_classified_inputs_are_kept():
    b = batch(40)
    b.layers["layer0"][3, 1] = torch.nan
    b.relevance["layer1"][5, 0] = torch.inf
    correct = b.labels == b.predictions
    correct[[3, 5]] = False
    rows = learnt(b, activations=True).rows
    assert 0 < len(rows) == int(correct.sum()) < 38
    assert torch.equal(rows.classes, b.labels[correct])
    assert torch.equal(unpack(rows.bits, 8), critical_paths(b, 0.7)[correct])
    assert torch.equal(rows.activations, torch.cat(list(b.layers.values()), 1)[correct])
    assert learnt(b).rows.activations is None


def test_classes_are_all_that_occur_among_the_labels():
    b = batch(4, labels=torch.tensor([7, 2, 9, 2]), predictions=torch.tensor([7, 7, 7, 1]))
    paths = learnt(b)
    assert paths.classes.tolist() == [2, 7, 9]
    assert paths.rows.classes.tolist() == [7]


def test_an_input_that_is_not_finite_has_no_path():
    b = batch(3)
    b.relevance["layer0"][1, 0] = torch.nan
    assert explained(b).tolist() == [True, False, True]
    assert critical_paths(b, 0.7).any(1).tolist() == [True, False, True]


def test_an_absent_layer_has_no_part_in_the_path():
    b = batch(3, present={"layer1": torch.tensor([True, False, True])})
    bits = critical_paths(b, 0.7)
    assert bits[:, 5:].any(1).tolist() == [True, False, True]
    assert not all_neurons(b)[1, 5:].any()
    assert torch.equal(all_neurons(b)[1, :5], b.layers["layer0"][1])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_batches_do_not_matter(sizes):
    b = batch(sum(sizes) + 1)
    bounds = np.cumsum([0, *sizes, 1])
    parts = [b.take(slice(int(i), int(j))) for i, j in itertools.pairwise(bounds)]
    name = paths_name(0.7)
    whole = Reference.empty(b.layout, {name}).observe(b)
    split = Reference.empty(b.layout, {name})
    for part in parts:
        split = split.observe(part)
    assert split.identity({name}) == whole.identity({name})


def test_many_batches_leave_few_parts():
    b = batch(500, predictions=torch.zeros(500, dtype=torch.int64), labels=torch.zeros(500, dtype=torch.int64))
    paths = learnt(*(b.take(slice(i, i + 1)) for i in range(500)))
    assert len(paths.rows) == 500
    assert len(paths.parts) <= 10
    assert torch.equal(unpack(paths.rows.bits, 8), critical_paths(b, 0.7))


def test_every_alpha_has_its_own():
    b = batch(30)
    names = {paths_name(0.3), paths_name(0.9), paths_name(0.9, activations=True)}
    reference = Reference.empty(b.layout, names).observe(b)
    assert {paths.name for paths in reference.paths} == names
    few, many = (unpack(reference.find(paths_name(alpha)).rows.bits, 8) for alpha in (0.3, 0.9))
    assert few.sum() < many.sum()
    assert not (few & ~many).any()
    assert reference.find(paths_name(0.5)) is None
    assert len({reference.identity({name}) for name in names}) == 3


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ("labels", "learnt from correctly classified inputs: calibrate with labels"),
        ("predictions", "paths need predictions"),
        ("relevance", "paths need relevance"),
    ],
)
def test_what_is_lacking_is_named(lacking, message):
    with pytest.raises(CalibrationError, match=message):
        learnt(batch(**{lacking: None}))


def test_nothing_seen():
    paths = Paths.empty(paths_name(0.7), 8, torch.device("cpu"))
    assert len(paths.rows) == 0
    assert len(paths.observe(batch(5).take(slice(0, 0))).rows) == 0

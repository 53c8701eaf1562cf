import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CalibrationError
from neuralcov.criteria.npc.npc import NPC
from neuralcov.criteria.npc.paths import (
    Paths,
    TrainingPaths,
    critical_neurons,
    critical_paths,
    finite_with_relevance,
)
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.traces import Traces, trace_of


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


def calibration_of(batches, *criteria):
    calibration = Calibration.empty(batches[0].layout, criteria)
    for each in batches:
        calibration = calibration.observe(each)
    return calibration.finished()


def learnt(*batches, alpha=0.7):
    return calibration_of(batches, NPC(alpha)).find(Paths(alpha))


def bits_of(paths, neurons=8):
    return paths.rows.bits(slice(None), neurons)


def test_paths_of_correctly_classified_inputs_are_kept():
    b = batch(40)
    b.layers["layer0"][3, 1] = torch.nan
    b.relevance["layer1"][5, 0] = torch.inf
    correct = b.labels == b.predictions
    correct[[3, 5]] = False
    paths = learnt(b)
    assert 0 < len(paths.rows) == int(correct.sum()) < 38
    assert torch.equal(paths.rows.classes, b.labels[correct])
    assert torch.equal(bits_of(paths), critical_paths(b, 0.7)[correct])


def test_numbers_find_the_inputs_among_the_traces():
    b = batch(40)
    b.layers["layer0"][[3, 17], 1] = torch.nan
    b.relevance["layer1"][5, 0] = torch.inf
    parts = [b.take(slice(0, 13)), b.take(slice(13, 14)), b.take(slice(14, 40))]
    calibration = calibration_of(parts, NPC(mode="activation"))
    correct = b.labels == b.predictions
    correct[[3, 5, 17]] = False
    numbers = calibration.find(Paths(0.7)).rows.numbers
    assert torch.equal(calibration[Traces()].rows(numbers), trace_of(b, tuple(b.layers))[correct])


def test_classes_are_all_that_occur_among_the_labels():
    b = batch(4, labels=torch.tensor([7, 2, 9, 2]), predictions=torch.tensor([7, 7, 7, 1]))
    paths = learnt(b)
    assert paths.classes.tolist() == [2, 7, 9]
    assert paths.rows.classes.tolist() == [7]


def test_an_input_that_is_not_finite_has_no_path():
    b = batch(3)
    b.relevance["layer0"][1, 0] = torch.nan
    assert finite_with_relevance(b).tolist() == [True, False, True]
    assert critical_paths(b, 0.7).any(1).tolist() == [True, False, True]


def test_an_absent_layer_has_no_part_in_the_path():
    b = batch(3, present={"layer1": torch.tensor([True, False, True])})
    bits = critical_paths(b, 0.7)
    assert bits[:, 5:].any(1).tolist() == [True, False, True]
    assert bits[1, :5].any()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_batches_do_not_matter(sizes):
    b = batch(sum(sizes) + 1)
    bounds = np.cumsum([0, *sizes, 1])
    parts = [b.take(slice(int(i), int(j))) for i, j in itertools.pairwise(bounds)]
    identities = {calibration_of(some, NPC()).identity({Paths(0.7)}) for some in ([b], parts)}
    assert len(identities) == 1


def test_many_batches_leave_few_parts():
    b = batch(500, predictions=torch.zeros(500, dtype=torch.int64), labels=torch.zeros(500, dtype=torch.int64))
    paths = TrainingPaths.empty("paths(0.7)", b.layout)
    for i in range(500):
        paths = paths.observe(b.take(slice(i, i + 1)))
    assert len(paths.rows) == 500
    assert len(paths.parts) <= 10
    assert torch.equal(bits_of(paths), critical_paths(b, 0.7))


def test_every_alpha_has_its_own():
    b = batch(30)
    calibration = calibration_of([b], NPC(0.3), NPC(0.9), NPC(0.9, beta=0.5))
    assert [statistic.label for statistic in calibration.of_training] == ["paths(0.3)", "paths(0.9)"]
    few, many = (bits_of(calibration.find(Paths(alpha))) for alpha in (0.3, 0.9))
    assert few.sum() < many.sum()
    assert not (few & ~many).any()
    assert calibration.find(Paths(0.5)) is None
    assert calibration.identity({Paths(0.3)}) != calibration.identity({Paths(0.9)})


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
    paths = TrainingPaths.empty("paths(0.7)", batch().layout)
    assert len(paths.rows) == 0
    assert len(paths.observe(batch(5).take(slice(0, 0))).rows) == 0
    assert len(paths.finished().rows) == 0

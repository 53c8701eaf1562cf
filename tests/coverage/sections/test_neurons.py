"""Neurons against NumPy: extremes, dead and constant ones, shares of cells, eigenvalues, the nearest inputs."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.counted import counted
from neuralcov.coverage.sections.even_sample import EvenSample

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


class Net(nn.Module):
    """Neuron 2 of the first layer is never above 0, neuron 5 gives one value."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.same, self.last = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        with torch.no_grad():
            self.first.bias[2] = -100.0
            self.first.weight[5] = 0.0

    def forward(self, inputs):
        return self.last(self.same(self.first(inputs).relu()).relu())


def outputs(net, inputs):
    with torch.no_grad():
        first = net.first(inputs)
        same = net.same(first.relu())
        return {"first": first.numpy(), "same": same.numpy(), "last": net.last(same.relu()).numpy()}


def suite(count=90, seed=3):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def assessed(net, inputs, size=25, **options):
    found = nc.Coverage(net, [nc.KMNC(10), nc.SNAC()])
    found.calibrate([suite(60, seed=1)], progress=False)
    found.assess(list(torch.split(inputs, size)), progress=False, **options)
    return found


@pytest.mark.parametrize("with_nan", [False, True])
def test_neurons_are_as_numpy_finds_them(with_nan):
    net, inputs = Net(), suite()
    if with_nan:
        inputs = torch.cat([inputs[:30], torch.full((1, 4), torch.nan), inputs[30:]])
    found = assessed(net, inputs)
    expected = outputs(net, suite())
    rows = {row.layer: row for row in found.results().neurons}
    assert list(rows) == ["first", "same", "last"]
    training = outputs(net, suite(60, seed=1))
    for name, values in expected.items():
        row = rows[name]
        dead, constant = np.flatnonzero(values.max(0) <= 0), np.flatnonzero(values.max(0) == values.min(0))
        assert (row.dead, row.dead_count) == (tuple(dead), len(dead))
        assert (row.constant, row.constant_count) == (tuple(constant), len(constant))
        # KMNC's cells by hand: tenths of the range that training showed.
        low, high = training[name].min(0), training[name].max(0)
        shares = np.zeros(values.shape[1])
        for neuron in range(values.shape[1]):
            width = high[neuron] - low[neuron]
            if width > 0:
                place = (values[:, neuron].astype(np.float64) - low[neuron]) / width * 10
                inside = (place >= 0) & (values[:, neuron] <= high[neuron])
                shares[neuron] = len(set(np.minimum(place[inside].astype(int), 9))) / 10
        by_number = dict(zip(row.numbers["KMNC(10)"], row.visited["KMNC(10)"], strict=True))
        usable = [n for n in range(values.shape[1]) if n not in constant]
        assert [by_number[n] for n in usable] == pytest.approx([shares[n] for n in usable])
        assert list(row.visited["KMNC(10)"]) == sorted(row.visited["KMNC(10)"])
        alive = [n for n in by_number if n not in dead]
        assert row.living["KMNC(10)"] == pytest.approx(np.mean([by_number[n] for n in alive]))
        covariance = np.cov(values.T.astype(np.float64))
        eigenvalues = np.linalg.eigvalsh(covariance)[::-1][:10] / np.trace(covariance)
        assert row.eigenvalues == pytest.approx(np.maximum(eigenvalues, 0), abs=1e-6)
    assert 2 in rows["first"].dead
    assert rows["first"].constant == (5,)


def test_two_suites_together_have_the_extremes_of_both(tmp_path):
    net, inputs = Net(), suite(60)
    whole = assessed(net, inputs)
    first, second = assessed(net, inputs[:35]), assessed(net, inputs[35:])
    first.save(tmp_path / "a.ncov")
    loaded = nc.Coverage.load(tmp_path / "a.ncov")
    for merged in (first, loaded):
        merged.merge(second)
        for ours, theirs in zip(merged.results().neurons, whole.results().neurons, strict=True):
            assert (ours.dead, ours.constant, ours.visited) == (theirs.dead, theirs.constant, theirs.visited)
            assert ours.eigenvalues == ()
    in_turn = nc.Coverage(net, [nc.KMNC(10), nc.SNAC()])
    in_turn.calibrate([suite(60, seed=1)], progress=False)
    in_turn.assess([inputs[:35]], progress=False)
    in_turn.assess([inputs[35:]], progress=False)
    assert [row.dead for row in in_turn.results().neurons] == [row.dead for row in whole.results().neurons]


def test_extremes_of_inputs_that_nobody_watched_are_not_told():
    found = assessed(Net(), suite(30))
    found.update(suite(10, seed=8))
    assert all(row.dead is None for row in found.results().neurons)
    found.assess([suite(10, seed=9)], progress=False)
    assert all(row.dead is None for row in found.results().neurons), "those of the update are not known"


def test_the_nearest_gave_the_highest_output_of_what_is_uncovered():
    net, inputs = Net(), suite(40)
    found = assessed(net, inputs, keep_inputs=True)
    bare = found.uncovered()["SNAC"]
    highest = {}
    for layer, numbers in bare.items():
        for number in numbers:
            highest.setdefault(int(outputs(net, inputs)[layer][:, number].argmax()), []).append((layer, number))
    gallery = next(g for g in found.results().galleries if g.title == "Nearest to what is uncovered")
    assert gallery.items
    for item in gallery.items:
        neurons = highest[int(item.id)]
        assert f"highest in {counted(len(neurons), 'neuron')} that SNAC lacks" in item.why
        assert f"{neurons[0][0]} {neurons[0][1]}" in item.why
    counts = [len(highest[int(item.id)]) for item in gallery.items]
    assert counts == sorted((len(some) for some in highest.values()), reverse=True)[: len(counts)]


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_samples_are_evenly_spaced_and_never_too_many(size):
    for count in (1, 9, 10, 11, 64, 300):
        sample, data = EvenSample(10), torch.arange(count)
        for part in torch.split(data, size):
            sample.add(len(part), lambda rows, part=part: [part[rows]])
        (kept,) = sample.rows()
        assert len(kept) == count if count <= 10 else 5 <= len(kept) <= 10
        assert kept[0] == 0
        assert len(set(kept.diff().tolist())) <= 1
    assert EvenSample(3).rows() is None

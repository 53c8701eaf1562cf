"""A sample of traces: one layer, evenly spaced inputs, with their classes."""

import torch

import neuralcov as nc
from neuralcov.core.layout import Layout
from neuralcov.statistics.traces import Traces

WIDTHS = {"a": 3, "b": 2, "c": 4}


def gathered(*batches, statistic=Traces()):  # noqa: B008
    store = statistic.init(Layout(WIDTHS))
    for batch in batches:
        store = statistic.observe(store, batch)
    return statistic.finish(store)


def batch(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    layers = {name: torch.randn(size, width, generator=generator) for name, width in WIDTHS.items()}
    return nc.Activations(layers, predictions=torch.arange(size) % 3)


def test_a_sample_is_evenly_spaced():
    whole = batch(100)
    sample = gathered(whole.take(slice(0, 60)), whole.take(slice(60, 100))).sample("b", WIDTHS, 8)
    rows = [number * 100 // 8 for number in range(8)]
    assert torch.equal(torch.cat(sample.blocks), whole.layers["b"][rows])
    assert sample.predictions.tolist() == [row % 3 for row in rows]
    assert (sample.names, len(sample)) == (("b",), 8)


def test_all_where_there_are_no_more():
    whole = batch(5)
    sample = gathered(whole).sample("c", WIDTHS, 100)
    assert torch.equal(torch.cat(sample.blocks), whole.layers["c"])


def test_inputs_that_are_not_finite_in_the_layer_are_left_out():
    whole = batch(6)
    whole.layers["b"][2, 0] = torch.nan
    store = gathered(whole, statistic=Traces(("a",)).join(Traces(("b",))))
    widths = {"a": 3, "b": 2}
    assert len(store.sample("b", widths, 10)) == 5
    assert len(store.sample("a", widths, 10)) == 6

"""``runs``: every batch with its activations and output; nothing is observed, and known batches are not run."""

import pytest
import torch

import neuralcov as nc
from neuralcov.core.errors import InputError


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))


def test_every_batch_comes_with_what_the_model_gave(model):
    inputs = torch.randn(10, 3)
    coverage = nc.Coverage(model, [nc.NC()])
    batches = [nc.Batch(inputs[:6], ids=list("abcdef"), metadata={"weather": ["rain"] * 6}), inputs[6:]]
    first, second = coverage.runs(batches)
    torch.testing.assert_close(first.output, model(inputs[:6]))
    torch.testing.assert_close(first.activations.layers["2"], model(inputs[:6]))
    assert first.activations.predictions.tolist() == model(inputs[:6]).argmax(1).tolist()
    assert (first.size, first.ids, first.metadata["weather"][0]) == (6, tuple("abcdef"), "rain")
    assert (second.size, second.ids) == (4, None)
    assert coverage.inputs == 0
    assert not any(module._forward_hooks for module in model.modules())


def test_batches_that_are_known_are_not_run(model):
    inputs = torch.randn(20, 3)
    ran = []
    model.register_forward_hook(lambda module, args, output: ran.append(len(output)))
    coverage = nc.Coverage(model, [nc.NC()])
    coverage.probe(inputs)
    ran.clear()
    runs = list(coverage.runs(inputs.split(4), known=lambda first: 14))
    assert [run.activations is None for run in runs] == [False, True, True, False, False]
    assert sum(ran) == 12
    plain = list(coverage.runs(inputs.split(4)))
    assert all(torch.equal(a.keys, b.keys) and a.size == b.size for a, b in zip(runs, plain, strict=True))


def test_relevance_is_computed_only_where_it_is_asked_for(model):
    coverage = nc.Coverage(model, [nc.NPC()])
    inputs = torch.randn(4, 3)
    (plain,) = coverage.runs([inputs])
    (explained,) = coverage.runs([inputs], relevance=True)
    assert plain.activations.relevance is None
    assert set(explained.activations.relevance) == {"0", "2"}


def test_without_a_model_there_is_nothing_to_run():
    with pytest.raises(InputError, match="no model"):
        list(nc.Coverage.of_layers({"fc": 2}, [nc.NC()]).runs([torch.zeros(1, 2)]))

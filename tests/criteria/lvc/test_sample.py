import torch

from neuralcov.core.activations import Activations
from neuralcov.core.layout import Layout
from neuralcov.criteria.lvc.sample import InputSample


def test_every_input_is_as_likely_to_stay(monkeypatch):
    monkeypatch.setattr("neuralcov.criteria.lvc.sample.MOST_INPUTS", 50)
    kept = torch.zeros(1000)
    for shift in range(40):
        sample = InputSample.empty(Layout({"a": 1}))
        # The draw depends on how many inputs came before, so another split is another draw.
        order = torch.randperm(1000, generator=torch.Generator().manual_seed(shift))
        for rows in order.split(37):
            sample = sample.observe(Activations({"a": rows[:, None].float()}))
        stack = sample.stacks()[0]
        assert stack.values.shape[0] == 50
        kept[stack.values.flatten().long()] += 1
    assert kept.sum() == 40 * 50
    assert kept.max() <= 10
    assert abs(kept[:500].sum() - 1000) < 4 * (2000 * 0.25) ** 0.5


def test_what_float32_cannot_hold_is_left_out():
    rows = torch.tensor([[1.0, 2.0], [1e60, 0.0], [3.0, -4.0]], dtype=torch.float64)
    stack = InputSample.empty(Layout({"a": 2})).observe(Activations({"a": rows})).stacks()[0]
    assert stack.valid.tolist() == [[True], [False], [True]]
    assert stack.values[:, 0].tolist() == [[1.0, 2.0], [0.0, 0.0], [3.0, -4.0]]


def test_fewer_inputs_than_places():
    sample = InputSample.empty(Layout({"a": 2})).observe(
        Activations({"a": torch.tensor([[1.0, 2.0], [torch.nan, 0.0]])})
    )
    stack = sample.stacks()[0]
    assert stack.values.shape[0] == 2
    assert stack.valid.tolist() == [[True], [False]]

import pytest
import torch

from neuralcov.core.activations import Activations


def batch(**extra):
    layers = {"a": torch.randn(4, 3), "b": torch.randn(4, 2), "c": torch.randn(4, 3)}
    return Activations(layers, **extra)


def test_layers_of_one_width_are_stacked_in_order():
    one = batch()
    first, second = one.stacks
    assert torch.equal(first.values, torch.stack([one.layers["a"], one.layers["c"]], 1))
    assert torch.equal(second.values[:, 0], one.layers["b"])
    assert first.valid is None
    assert one.input_counts.tolist() == [4, 0, 0]


def test_an_input_that_is_not_finite_anywhere_counts_nowhere():
    one = batch()
    one.layers["b"][2, 0] = torch.nan
    assert one.finite.tolist() == [True, True, False, True]
    assert not one.stacks[0].valid[2].any()
    assert not one.stacks[0].values[2].any()
    assert one.input_counts.tolist() == [3, 1, 0]


def test_absent_steps_count_only_there_and_may_hold_anything():
    one = batch(present={"c": torch.tensor([True, False, True, True])})
    one.layers["c"][1] = torch.nan
    assert one.finite.all()
    assert one.stacks[0].valid[1].tolist() == [True, False]
    assert one.stacks[0].counts().tolist() == [4, 3]
    assert not one.stacks[0].values[1, 1].any()
    assert one.stacks[1].valid is None


def test_take_and_only():
    one = batch(labels=torch.arange(4), present={"b": torch.tensor([True, False, True, True])})
    for rows in (slice(1, 3), torch.tensor([1, 2]), torch.tensor([False, True, True, False])):
        part = one.take(rows)
        assert part.labels.tolist() == [1, 2]
        assert torch.equal(part.layers["a"], one.layers["a"][1:3])
        assert part.present["b"].tolist() == [False, True]
    one.stacks  # noqa: B018 - computed before taking, slices are taken from the stacks
    assert torch.equal(one.take(slice(1, 3)).stacks[0].values, one.stacks[0].values[1:3])
    assert list(one.only(["c", "b"]).layers) == ["b", "c"]
    assert one.only(["c"]).present == {}
    assert one.only(("c",)) is one.only(["c"])


def test_work_is_shared():
    calls = []
    one = batch()
    assert [one.shared("key", lambda: calls.append(1)) for _ in range(3)] == [None] * 3
    assert len(calls) == 1


def test_the_largest_numbers_are_finite():
    one = batch()
    one.layers["a"][0] = torch.tensor([3e38, -3e38, 0.0])
    one.layers["c"][1] = torch.tensor([3e38, 3e38, 3e38])
    assert one.finite.all()
    one.layers["b"][2] = torch.tensor([-torch.inf, 1.0])
    assert batch(present={}).finite.all()
    assert nc_finite(one.layers) == [True, True, False, True]


def test_float64_beyond_float32_is_finite_as_long_as_sums_of_its_squares_are():
    rows = torch.tensor([[1e60, -1e60], [1e139, 0.0], [1e141, 0.0], [0.0, -1e300]], dtype=torch.float64)
    assert Activations({"a": rows}).finite.tolist() == [True, True, False, False]


def nc_finite(layers):
    return Activations(layers).finite.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_nan_and_infinity_of_every_precision(dtype):
    rows = torch.tensor([[1.0, torch.inf], [0.0, 1.0], [torch.nan, 0.0], [0.0, -torch.inf]], dtype=dtype)
    assert Activations({"a": rows}).finite.tolist() == [False, True, False, False]


def test_inputs_that_are_not_valid_take_part_in_nothing():
    mask = torch.tensor([True, False, True, True])
    one = batch(valid=mask)
    assert one.finite.tolist() == mask.tolist()
    assert one.only(["b"]).finite.tolist() == mask.tolist()
    assert one.input_counts.tolist() == [3, 1, 0]
    assert all((stack.values[1] == 0).all() and not stack.valid[1].any() for stack in one.stacks)
    assert one.take(slice(1, 3)).finite.tolist() == [False, True]
    assert Activations.cat([batch(), one]).finite.tolist() == [True] * 4 + mask.tolist()

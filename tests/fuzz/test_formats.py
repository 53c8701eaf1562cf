import pytest
import torch

from neuralcov.core.errors import InputError
from neuralcov.fuzz.formats import Pixels, Tokens, format_of


@pytest.mark.parametrize("levels", [255, 16])
def test_bytes_come_back_as_they_were(levels):
    stored = torch.arange(levels + 1, dtype=torch.uint8).reshape(1, 1, 1, -1)
    space = format_of(stored, levels=levels)
    assert space == Pixels(levels)
    assert float(space.decode(stored).max()) == 1.0
    assert torch.equal(space.encode(space.decode(stored)), stored)
    assert space.encode(torch.tensor([-0.3, 1.7])).tolist() == [0, levels]


def test_mutants_of_bytes_are_rounded_and_floats_are_not():
    values = torch.tensor([0.1001, 0.5])
    assert Pixels(255).encode(values).tolist() == [26, 128]
    assert torch.equal(Pixels(None).encode(values), values)


def test_kinds_of_inputs():
    assert format_of(torch.rand(2, 3)) == Pixels(None)
    assert format_of(torch.ones(2, 3, dtype=torch.int16), padding=7) == Tokens(7)
    assert Tokens(0, ["<pad>", "good", "film"]).text(torch.tensor([1, 2, 0, 0])) == "good film"
    assert Tokens(0).text(torch.tensor([5, 2, 0])) == "5 2"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.tensor([[0.0, 1.5]]), r"range from 0 to 1\.5: expected pixels in \[0, 1\]"),
        (torch.tensor([[float("nan")]]), r"expected pixels in \[0, 1\]"),
        (torch.full((1, 1), 17, dtype=torch.uint8), "hold the byte 17: expected at most levels=16"),
        (torch.ones(1, 2, 3, dtype=torch.int64), r"expected bytes or floats in \[0, 1\] as pixels, or tokens"),
    ],
)
def test_inputs_that_fit_nothing(inputs, message):
    with pytest.raises(InputError, match=message):
        format_of(inputs, levels=16)

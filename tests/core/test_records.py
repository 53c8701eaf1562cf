from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from neuralcov.core.errors import StateFileError
from neuralcov.core.records import Record, fingerprint, flatten, map_tensors, move, unflatten


@dataclass(frozen=True, eq=False)
class Inner(Record):
    tensor: Tensor
    number: float


@dataclass(frozen=True, eq=False)
class Outer(Record):
    parts: tuple
    name: str
    nothing: None = None


def tree():
    shared = torch.arange(3)
    return Outer((Inner(shared, 0.5), Inner(torch.ones(2), 2), shared), "x")


def test_round_trip_stores_a_shared_tensor_once():
    tensors = {}
    structure = flatten(tree(), "t", tensors)
    assert len(tensors) == 2
    again = unflatten(structure, tensors)
    assert isinstance(again, Outer)
    assert (again.name, again.nothing, again.parts[0].number) == ("x", None, 0.5)
    assert again.parts[0].tensor is again.parts[2]


def test_map_and_move():
    doubled = map_tensors(lambda t: t * 2, tree())
    assert doubled.parts[2].tolist() == [0, 2, 4]
    assert move(tree(), "meta").parts[1].tensor.is_meta


def test_only_plain_things_are_stored():
    with pytest.raises(TypeError, match="cannot hold a dict"):
        flatten(Inner({}, 1), "t", {})
    with pytest.raises(StateFileError, match="not known here"):
        unflatten({"record": "builtins:eval", "fields": {}}, {})


def test_fingerprints_tell_trees_apart():
    assert fingerprint(tree()) == fingerprint(tree())
    assert fingerprint(tree()) != fingerprint(map_tensors(lambda t: t + 1, tree()))
    assert fingerprint(torch.zeros(2, 3)) != fingerprint(torch.zeros(3, 2))
    assert fingerprint(torch.zeros(2)) != fingerprint(torch.zeros(2, dtype=torch.int32))
    assert fingerprint((1, 2)) != fingerprint((2, 1))

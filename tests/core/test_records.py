from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from neuralcov.core.errors import DeclarationError, StateFileError
from neuralcov.core.old_names import SCHEMA_1, with_declared_names
from neuralcov.core.records import Record, fingerprint, flatten, map_tensors, move, stored_name, unflatten


@dataclass(frozen=True, eq=False)
class Inner(Record, name="tests.inner"):
    tensor: Tensor
    number: float


@dataclass(frozen=True, eq=False)
class Outer(Record, name="tests.outer"):
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


def test_files_hold_declared_names_only():
    structure = flatten(tree(), "t", {}, stored_name)
    assert structure["record"] == "tests.outer"

    @dataclass(frozen=True, eq=False)
    class Nameless(Record):
        number: int

    assert flatten(Nameless(1), "t", {})["fields"] == {"number": {"value": 1}}
    with pytest.raises(StateFileError, match=r"Nameless of tests.core.test_records cannot be saved: declare a name"):
        flatten(Nameless(1), "t", {}, stored_name)
    with pytest.raises(StateFileError, match="cannot be saved"):
        # A subclass has fields of its own, perhaps: it does not go by its parent's name.
        flatten(type("Child", (Inner,), {})(torch.ones(1), 1.0), "t", {}, stored_name)


def test_names_are_declared_once_and_tell_whose_they_are():
    with pytest.raises(DeclarationError, match=r"two records are called 'tests.inner': Inner of .* and Double of"):
        type("Double", (Record,), {}, name="tests.inner")
    with pytest.raises(DeclarationError, match="the record name 'rarity' needs a prefix of its package"):
        type("Rarity", (Record,), {}, name="rarity")
    with pytest.raises(DeclarationError, match="has a dot, which marks other packages"):
        type("Ours", (Record,), {"__module__": "neuralcov.core.x"}, name="acme.rarity")


def test_every_record_of_schema_1_has_a_name_today():
    assert len(SCHEMA_1) == 26
    ours = {name for name, cls in Record.known.items() if cls.__module__.startswith("neuralcov.")}
    # A calibration is plain data around records now.
    assert set(SCHEMA_1.values()) - {"calibration"} <= ours
    assert not [name for name in ours if "." in name and name not in SCHEMA_1]
    old = {"record": "neuralcov.core.keys:KeySet", "fields": {"words": {"tensor": "w"}, "longest": {"value": 1}}}
    assert with_declared_names([old], {})[0]["record"] == "key-set"
    # One whose form has changed since is known by its old name.
    assert with_declared_names(old, {"neuralcov.core.keys:KeySet"}) == old

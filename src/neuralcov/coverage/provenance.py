"""Where a coverage comes from: which weights it was measured on, with what software, and when."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from neuralcov.core.digests import tensor_digest
from neuralcov.core.errors import CalibrationError, InputError, MismatchError
from neuralcov.coverage.environment import device_name, software

# What files say of the weights, where they changed while calibration was made.
_MOVING = "moving"
# Parameters to look at for every batch within a block.
_AT_ONCE = 16


class Weights:
    """Remember the parameters of a model at one moment, to see a later change of them at hardly any cost.

    A tensor counts how often it was written to; one that was put elsewhere has another address. Buffers are not
    watched, since the tap puts them back after every block: they belong to a model's id.
    """

    def __init__(self, model: nn.Module) -> None:
        # Every place where the model keeps a parameter or a part, and what is there.
        self._places = [
            (place, name, kept)
            for module in model.modules()
            for place in (module._parameters, module._modules)
            for name, kept in place.items()
        ]
        self._marks = [_Mark.of(parameter) for parameter in model.parameters()]
        self._next = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Weights:
        """Watch the copied parameters, which lie elsewhere; a change that was not noticed yet goes along."""
        twin = type(self).__new__(type(self))
        twin._places = copy.deepcopy(self._places, memo)
        marks = [_Mark.of(copy.deepcopy(mark.parameter, memo)) for mark in self._marks]
        twin._marks = marks if self.unchanged() else [mark._replace(version=-1) for mark in marks]
        twin._next = 0
        return twin

    def __getstate__(self) -> dict[str, Any]:
        # Counts of writes and addresses do not last: of those that come back, new ones are taken.
        return {"places": self._places, "parameters": [m.parameter for m in self._marks], "unchanged": self.unchanged()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        marks = [_Mark.of(parameter) for parameter in state["parameters"]]
        self._places, self._next = state["places"], 0
        self._marks = marks if state["unchanged"] else [mark._replace(version=-1) for mark in marks]

    def unchanged(self, *, whole: bool = True) -> bool:
        """Return whether nobody has written to a parameter or put another in its place.

        Training writes to all of them: unless the ``whole`` model is asked for, a few are looked at, others each time.
        """
        if whole:
            # What scripted modules keep parameters in has no get().
            placed = all(name in place and place[name] is kept for place, name, kept in self._places)
            return placed and _hold(self._marks)
        some = self._marks[self._next : self._next + _AT_ONCE]
        self._next = self._next + _AT_ONCE if self._next + _AT_ONCE < len(self._marks) else 0
        return _hold(some)


class _Mark(NamedTuple):
    """Hold a parameter, how often it was written to, and where it lies; ``None`` for what it cannot tell."""

    parameter: Tensor
    version: int | None
    address: int | None

    @classmethod
    def of(cls, parameter: Tensor) -> _Mark:
        """Note a parameter as it is. Tensors of inference mode do not count, and special ones may lie anywhere."""
        plain = type(parameter) is nn.Parameter and parameter.layout == torch.strided
        version = None if parameter.is_inference() else parameter._version
        return cls(parameter, version, parameter.data_ptr() if plain else None)


def _hold(marks: Sequence[_Mark]) -> bool:
    for parameter, version, address in marks:
        if version is not None and parameter._version != version:
            return False
        if address is not None and parameter.data_ptr() != address:
            return False
    return True


_digests: WeakKeyDictionary[nn.Module, tuple[Weights, dict[str, str]]] = WeakKeyDictionary()


def model_id(model: nn.Module) -> str:
    """Return the SHA-256 of a model: names, types, shapes and values of its parameters and buffers.

    Parameters are hashed once, as long as nobody changes them; buffers, which are small, every time.
    """
    known = _digests.get(model)
    if known is None or not known[0].unchanged():
        known = (Weights(model), {})
        _digests[model] = known
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    digest = hashlib.sha256()
    for name, tensor in _tensors_of(model):
        if name not in known[1] or name not in parameters:
            known[1][name] = tensor_digest(tensor)
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape), known[1][name]]).encode())
    return digest.hexdigest()


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a state dictionary that has bytes to tell it by; a sharded one as a whole."""
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor) or nn.parameter.is_lazy(value):
            continue
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        if whole.is_quantized:
            whole = whole.int_repr()
        if whole.layout == torch.strided and not whole.is_meta:
            yield name, whole.detach()


def describe_model(model: nn.Module, identity: str) -> dict[str, Any]:
    """Return what files say of a model."""
    count = sum(parameter.numel() for parameter in model.parameters() if not nn.parameter.is_lazy(parameter))
    return {"id": identity, "class": type(model).__name__, "parameters": count}


@dataclass(frozen=True, eq=False)
class Origin:
    """Tell what the inputs so far were measured on.

    Args:
        model: what files say of the model, its id above all; ``None`` as long as it is not needed, or not known.
        weights: the parameters at the first of these inputs, where there is a model.
        known: whether the model can be told at all: a file of schema 1 does not tell it.
        parents: the ids of the files that were merged in.
        file: the id of the file that this was loaded from.
        moving: whether the weights changed meanwhile, so that the inputs were measured on others than these too.
        procedure: how the inputs were measured, where somebody noted it, with the number of inputs it is about.
        parts: from how many states, measured apart, this was merged.
    """

    model: dict[str, Any] | None = None
    weights: Weights | None = None
    known: bool = True
    parents: tuple[str, ...] = ()
    file: str | None = None
    moving: bool = False
    procedure: Mapping[str, Any] | None = None
    parts: int = 1

    @property
    def id(self) -> str | None:
        """Return the model's id, if it was made."""
        return None if self.model is None else str(self.model["id"])


class Provenance:
    """Keep track of where the states of one coverage, and what its criteria learnt, come from.

    Args:
        model: what is measured, ``None`` where somebody else computes the activations.
        preprocessing: what a user says was done to the inputs.
    """

    def __init__(self, model: nn.Module | None, preprocessing: Any = None) -> None:
        self.model = model
        self.preprocessing = checked_preprocessing(preprocessing)
        self.states = Origin()
        self.calibration: Origin | None = None

    def watch(self, *, empty: bool, whole: bool) -> None:
        """Note the weights at the first batch; refuse a later one if they changed since.

        Args:
            empty: whether nothing has been observed.
            whole: whether to look for parameters that were put in others' places too, which takes longer.
        """
        if self.model is None:
            return
        if empty:
            self.states = Origin(weights=Weights(self.model))
            self._require_calibration()
        elif self.states.weights is None:
            self.states = replace(self.states, weights=Weights(self.model))
        elif not self.states.weights.unchanged(whole=whole):
            if self.states.id is None or self.states.id != model_id(self.model):
                raise MismatchError("the weights changed since the first of these inputs: reset() or a new Coverage")
            self.states = replace(self.states, weights=Weights(self.model))

    def measured_on(self, *, empty: bool) -> dict[str, Any] | None:
        """Return what is known of the model that the states come from, or of the one they will come from."""
        if self.model is not None and empty:
            return describe_model(self.model, model_id(self.model))
        if self.model is not None and self.states.known and self.states.model is None:
            self.watch(empty=False, whole=True)
            self.states = replace(self.states, model=describe_model(self.model, model_id(self.model)))
        return self.states.model

    def calibrated_on(self) -> dict[str, Any] | None:
        """Return what is known of the model that calibration was made with."""
        found = self.calibration
        if found is None or self.model is None or not found.known or found.model is not None:
            return None if found is None else found.model
        self._require_calibration()
        self.calibration = replace(found, model=describe_model(self.model, model_id(self.model)))
        return self.calibration.model

    def calibrated(self, *, moving: bool = False) -> None:
        """Note the weights that calibration was just made with; ``moving`` if they changed on the way."""
        self.calibration = None if self.model is None else Origin(weights=Weights(self.model), moving=moving)

    def take_calibration(self, path: Any, told: dict[str, Any] | None, *, moving: bool) -> None:
        """Accept a saved calibration, or refuse it if it says that it was made with other weights."""
        if self.model is None:
            self.calibration = Origin(model=told, known=told is not None, moving=moving)
            return
        if told is not None and told["id"] != model_id(self.model):
            raise CalibrationError(
                f"{path} was made with weights {short(told['id'])}, this model has {short(model_id(self.model))}: "
                "calibrate again"
            )
        self.calibration = Origin(model=told, weights=Weights(self.model), known=told is not None, moving=moving)

    def loaded(self, told: Mapping[str, Any], file: str | None) -> None:
        """Note where the states of a file come from, as far as it says."""
        model = told.get("model")
        weights = None if self.model is None else Weights(self.model)
        parents = tuple(str(parent) for parent in told.get("parents", ()))
        parts = int(told.get("parts", 1))
        self.states = Origin(model, weights, model is not None, parents, file, False, told.get("procedure"), parts)
        taught = told.get("calibration", {})
        if self.calibration is None and taught.get("model") is not None:
            self.calibration = Origin(taught["model"], weights, moving=is_moving(taught))

    @property
    def moving(self) -> bool:
        """Return whether the weights changed while calibration was made."""
        return self.calibration is not None and self.calibration.moving

    def note_procedure(self, procedure: Mapping[str, Any]) -> None:
        """Note how the inputs so far were measured."""
        self.states = replace(self.states, procedure=procedure)

    def merged(self, other: Provenance) -> None:
        """Note which files were merged in, and how many parts these are of."""
        theirs = (*other.states.parents, *([other.states.file] if other.states.file is not None else []))
        known = dict.fromkeys((*self.states.parents, *theirs))
        parts = self.states.parts + other.states.parts
        self.states = replace(self.states, parents=tuple(known), parts=parts)

    def copy(self) -> Provenance:
        """Return a copy that goes its own way."""
        twin = Provenance(self.model, self.preprocessing)
        twin.states, twin.calibration = self.states, self.calibration
        return twin

    def _require_calibration(self) -> None:
        """Refuse to measure with weights that calibration did not see."""
        found = self.calibration
        if found is None or self.model is None or found.weights is None or found.weights.unchanged():
            return
        ours = model_id(self.model)
        if found.id is None:
            raise CalibrationError("the weights changed since calibration: calibrate again")
        if found.id != ours:
            raise CalibrationError(
                f"the calibration was made with weights {short(found.id)}, this model has {short(ours)}: "
                "calibrate again"
            )
        self.calibration = replace(found, weights=Weights(self.model))

    def describe(self, device: torch.device, *, empty: bool) -> dict[str, Any]:
        """Return what files say, as plain data."""
        return {
            "model": self.measured_on(empty=empty),
            "calibration": {"model": self.calibrated_on(), **({"weights": _MOVING} if self.moving else {})},
            "preprocessing": self.preprocessing,
            "software": software(),
            "device": device_name(device),
            "parents": list(self.states.parents),
            **({"parts": self.states.parts} if self.states.parts > 1 else {}),
        }


def checked_provenance(told: Any) -> dict[str, Any]:
    """Return what a file says of where it comes from, if it has the form that the rest relies on."""
    if not isinstance(told, dict) or not isinstance(told.get("parents", []), list):
        raise TypeError("provenance")
    taught = told.get("calibration", {})
    if not isinstance(taught, dict):
        raise TypeError("provenance.calibration")
    for model in (told.get("model"), taught.get("model")):
        if model is not None and not (isinstance(model, dict) and isinstance(model["id"], str)):
            raise TypeError("provenance.model")
    if not isinstance(told.get("procedure", {}), (dict, type(None))):
        raise TypeError("provenance.procedure")
    return dict(told)


def require_same_preprocessing(ours: Any, theirs: Any) -> None:
    """Refuse inputs that were prepared in another way."""
    if ours == theirs:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        name = next(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
        said = f"{name} {ours.get(name)} here, {theirs.get(name)} there"
    else:
        said = f"{_told(ours)} here, {_told(theirs)} there"
    raise MismatchError(f"preprocessing differs: {said}")


def is_moving(told: Mapping[str, Any]) -> bool:
    """Return whether a file says of a calibration that the weights changed while it was made."""
    return told.get("weights") == _MOVING


def _told(preprocessing: Any) -> str:
    return "none was told" if preprocessing is None else str(preprocessing)


def checked_preprocessing(preprocessing: Any) -> Any:
    """Return what a user said of preprocessing as files hold it."""
    try:
        return json.loads(json.dumps(preprocessing))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"preprocessing={preprocessing!r}: expected text, numbers, lists and mappings of these ({error})"
        ) from error


def short(identity: str | None) -> str:
    """Return the beginning of an id, for messages."""
    return "none" if identity is None else f"{identity[:12]}…"

"""What a user gave, checked; and a campaign's configuration, by which it is known again."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError, MismatchError
from neuralcov.core.records import fingerprint
from neuralcov.fuzz.formats import InputFormat, Pixels, Tokens
from neuralcov.fuzz.mutations import Mutation, image_mutations, text_mutations
from neuralcov.fuzz.search.wave import Rules
from neuralcov.fuzz.validity import Validity
from neuralcov.tap.inputs import as_labels

# What must be the same to look at a campaign's faults, and for it to go on.
_READ = ("rules", "space", "mutations", "checks", "seeds")
_SAME = ("rules", "space", "mutations", "criteria", "calibration", "checks", "seeds")


def checked_inputs(inputs: Any) -> Tensor:
    """The seeds as a tensor."""
    roots = torch.as_tensor(inputs)
    if roots.dim() < 2 or not len(roots):
        raise InputError(f"inputs of shape {tuple(roots.shape)}: expected at least one input, (inputs, …)")
    return roots


def checked_labels(labels: Any, count: int, device: torch.device) -> Tensor | None:
    """One class per seed, on the device, where there are any."""
    found = as_labels(labels)
    if found is None:
        return None
    if len(found) != count:
        raise InputError(f"{len(found)} labels for {count} inputs: expected one label per input")
    if int(found.min()) < 0:
        raise InputError(f"a label {int(found.min())}: expected classes from 0 on")
    return found.long().to(device)


def checked_mutations(mutations: Sequence[Mutation] | None, roots: Tensor, space: InputFormat) -> tuple[Mutation, ...]:
    """The mutations asked for, or the usual ones for inputs of this form."""
    if mutations is None:
        if isinstance(space, Pixels) and roots.dim() == 4:
            return tuple(image_mutations(min(roots.shape[2:])))
        if isinstance(space, Tokens):
            return tuple(text_mutations(padding=space.padding))
        raise InputError(f"inputs of shape {tuple(roots.shape)} have no usual mutations: pass mutations=")
    for mutation in mutations:
        if not isinstance(mutation, Mutation):
            raise InputError(
                f"{mutation!r} is no mutation: expected for example Contrast([0.8, 1.2]); "
                "wrap a function of your own with mutation(function, geometric=False)"
            )
    names = [mutation.name for mutation in mutations]
    if not names or len(set(names)) < len(names):
        raise InputError(f"mutations {names}: expected at least one, and each of another name")
    return tuple(mutations)


def require_same(ours: dict[str, Any], theirs: dict[str, Any], where: str, *, going_on: bool = True) -> None:
    """Refuse a campaign that was something else; what guided it matters only if it is to go on."""
    for part in _SAME if going_on else _READ:
        if ours[part] == theirs[part]:
            continue
        mine, other = ours[part], theirs[part]
        if isinstance(mine, dict):
            part = next(name for name in {**other, **mine} if mine.get(name) != other.get(name))
            mine, other = mine.get(part), other.get(part)
        raise MismatchError(f"{where}: the campaign there has {part} {other}, this one {mine}; give it what it had")


def describe_weights(models: Mapping[str, nn.Module]) -> dict[str, str]:
    """By name, a fingerprint of a model's parameters and buffers."""
    return {name: fingerprint(tuple(_tensors_of(model))) for name, model in models.items()}


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, value in model.state_dict().items():
        # Others, such as quantised ones or those without data, cannot be told by their bytes.
        if type(value) is Tensor and value.layout == torch.strided and not (value.is_quantized or value.is_meta):
            yield name, value


def require_weights(ours: dict[str, str], theirs: dict[str, str], where: str) -> None:
    """Refuse to go on with a campaign on a model that has been trained anew."""
    for name, told in theirs.items():
        if ours.get(name, told) != told:
            raise MismatchError(
                f"{where}: the campaign there ran on other weights of the {name}; give it those, or begin a new "
                "campaign in another folder"
            )


def describe_rules(rules: Rules, validity: Validity) -> dict[str, Any]:
    """How the search goes, as plain data; a validity rule of one's own by its name."""
    plain = {name: value for name, value in asdict(rules).items() if name != "schedule"}
    identity = getattr(validity, "identity", None)
    rule = {"rule": getattr(validity, "__name__", "own")} if identity is None else identity()
    return {**plain, "schedule": rules.schedule.identity(), "validity": rule}


def describe_machine(device: torch.device) -> dict[str, str]:
    """What a campaign ran on: it goes on to the bit only on the same."""
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": _device_name(device),
    }


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type

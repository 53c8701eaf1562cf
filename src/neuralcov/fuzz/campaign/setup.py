"""What a user gave for a campaign: checked, turned into a search, and described so that a campaign knows its own."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError, MismatchError
from neuralcov.core.records import fingerprint
from neuralcov.coverage.coverage import Coverage
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.faults.checks import Check, FaultChecker, SecondModel
from neuralcov.fuzz.formats import InputFormat, Pixels, Tokens
from neuralcov.fuzz.limits import Limits
from neuralcov.fuzz.mutations import Mutation, image_mutations, text_mutations
from neuralcov.fuzz.search.guides import guide_of
from neuralcov.fuzz.search.runner import ModelRunner
from neuralcov.fuzz.search.seeds import SeedReport, survey
from neuralcov.fuzz.search.wave import Search
from neuralcov.fuzz.settings import FuzzSettings
from neuralcov.fuzz.validity import Validity
from neuralcov.tap.inputs import as_labels

# What must be the same, beside the settings, to look at a campaign's faults, and for it to go on.
_TO_READ = ("validity", "space", "mutations", "checks", "seeds")
_TO_GO_ON = ("validity", "space", "mutations", "criteria", "calibration", "checks", "seeds")


@dataclass(frozen=True, eq=False)
class CampaignSetup:
    """Hold everything that makes a campaign this one; see ``neuralcov.Fuzzer`` for the meaning of each part."""

    coverage: Coverage
    roots: Tensor
    labels: Tensor | None
    input_format: InputFormat
    mutations: tuple[Mutation, ...]
    validity: Validity
    preprocess: Callable[[Tensor], Any]
    checks: Mapping[str, Check]
    second_model: SecondModel | None
    settings: FuzzSettings
    notes: Mapping[str, Any]

    def survey(self, *, observe: bool) -> SeedReport:
        """Run the model on the seeds; with ``observe``, coverage takes them in."""
        observe = observe and self.settings.initial == "seeds"
        return survey(self._runner(), self.roots, self.labels, observe=observe, margins=self.settings.uses_margin)

    def search(self, report: SeedReport) -> Search:
        """Make a search that begins with the seeds."""
        labels, settings = self._known_labels(report), self.settings
        checker = FaultChecker(
            self.input_format,
            self.preprocess,
            labels,
            report.predictions,
            checks=self.checks,
            second_model=self.second_model,
            batch=settings.batch,
            limit=settings.time_limit,
            wrong_seeds=settings.wrong_seeds,
        )
        if report.result is not None:
            checker.learn(self.roots, report.result)
        state = CampaignState(
            self.roots,
            labels,
            report.predictions,
            report.can_be_seed,
            geometric=np.array([mutation.geometric for mutation in self.mutations]),
            forms=[mutation.forms for mutation in self.mutations],
            fault_types=checker.fault_types,
            tries=settings.tries,
            wave=settings.wave,
            margins=None if report.margins is None else report.margins[0],
            rivals=None if report.margins is None else report.margins[1],
            one_run=guide_of(settings).one_run,
            max_per_group=settings.max_per_group,
            moves_comparisons=settings.compared == "moved",
        )
        return Search(
            self.coverage,
            state,
            self._runner(),
            checker,
            self.mutations,
            self.input_format,
            self.validity,
            settings,
            self.labels,
        )

    def weights(self) -> dict[str, str]:
        """Return, by name, a fingerprint of each model's parameters and buffers."""
        models = {} if self.coverage.model is None else {"model": self.coverage.model}
        if self.second_model is not None:
            models["second model"] = self.second_model.model
        return {name: fingerprint(tuple(_tensors_of(model))) for name, model in models.items()}

    def seed_arrays(self, report: SeedReport) -> dict[str, np.ndarray]:
        """Return what a folder keeps of the seeds."""
        return {
            "inputs": self.roots.cpu().numpy(),
            "labels": self._known_labels(report),
            "predictions": report.predictions,
            "usable": report.can_be_seed.astype(np.uint8),
            **({} if report.margins is None else dict(zip(("margins", "rivals"), report.margins, strict=True))),
        }

    def describe(self, limits: Limits, report: SeedReport, seed_values: Mapping[str, float]) -> dict[str, Any]:
        """Return what a folder keeps of the rest, as plain data.

        Args:
            limits: when to stop.
            report: what the model makes of the seeds.
            seed_values: coverage after the seeds.
        """
        used = self.settings.uses_coverage
        return {
            "settings": self.settings.to_json(),
            "validity": _describe_validity(self.validity),
            "space": self.input_format.identity(),
            "mutations": [mutation.identity() for mutation in self.mutations],
            "criteria": [criterion.name for criterion in self.coverage.criteria] if used else [],
            "calibration": self.coverage.calibration_ids() if used else {},
            "checks": [*self.checks, *(["second model"] if self.second_model is not None else [])],
            "seeds": fingerprint((self.roots, torch.from_numpy(report.predictions))),
            "coverage of the seeds": dict(seed_values),
            "left out": {str(row): reason for row, reason in report.excluded.items()},
            "limits": asdict(limits),
            "machine": _describe_machine(self.coverage.device),
            "notes": dict(self.notes),
        }

    def require_same(self, report: SeedReport, config: Mapping[str, Any], where: str, *, going_on: bool) -> None:
        """Refuse a campaign that was something else, naming what differs first.

        Args:
            report: what the folder tells of the seeds.
            config: what the folder keeps.
            where: the folder.
            going_on: whether the search goes on; to look at faults it does not matter what guided it.
        """
        different = self.settings.first_difference(config["settings"])
        if different is not None:
            _refuse(where, different, config["settings"][different], self.settings.to_json()[different])
        ours = self.describe(Limits(**config["limits"]), report, {})
        for part in _TO_GO_ON if going_on else _TO_READ:
            mine, other = ours[part], config[part]
            if mine == other or (part == "calibration" and self._has_calibrations(other)):
                continue
            if isinstance(mine, dict):
                part = next(name for name in {**other, **mine} if mine.get(name) != other.get(name))
                mine, other = mine.get(part), other.get(part)
            _refuse(where, part, other, mine)

    def require_weights(self, config: Mapping[str, Any], where: str) -> None:
        """Refuse to go on with a campaign on a model that has been trained anew."""
        ours = self.weights()
        # The first campaigns do not tell their weights.
        for name, told in config.get("weights", {}).items():
            if ours.get(name, told) != told:
                raise MismatchError(
                    f"{where}: the campaign there ran on other weights of the {name}; give it those, or begin a new "
                    "campaign in another folder"
                )

    def _has_calibrations(self, stored: Mapping[str, Any]) -> bool:
        """Return whether calibrations are those of a folder, which may tell them by the ids of an earlier version."""
        return stored.keys() == self.coverage.calibration_ids().keys() and all(
            self.coverage.has_calibration(name, identity) for name, identity in stored.items()
        )

    def _known_labels(self, report: SeedReport) -> np.ndarray:
        return report.predictions if self.labels is None else self.labels.cpu().numpy()

    def _runner(self) -> ModelRunner:
        return ModelRunner(
            self.coverage,
            self.input_format,
            self.preprocess,
            self.settings.batch,
            self.settings.time_limit,
            classes=self.labels is not None or self.settings.needs_margin or not self.checks,
            keep_outputs=bool(self.checks),
            needs_margins=self.settings.needs_margin,
        )


def checked_inputs(inputs: Any) -> Tensor:
    """Return the seeds as a tensor."""
    roots = torch.as_tensor(inputs)
    if roots.dim() < 2 or not len(roots):
        raise InputError(f"inputs of shape {tuple(roots.shape)}: expected at least one input, (inputs, …)")
    return roots


def checked_labels(labels: Any, count: int, device: torch.device) -> Tensor | None:
    """Return one class per seed, on the device, where there are any."""
    found = as_labels(labels)
    if found is None:
        return None
    if len(found) != count:
        raise InputError(f"{counted(len(found), 'label')} for {counted(count, 'input')}: expected one label per input")
    if int(found.min()) < 0:
        raise InputError(f"a label {int(found.min())}: expected classes from 0 on")
    return found.long().to(device)


def checked_mutations(
    mutations: Sequence[Mutation] | None, roots: Tensor, input_format: InputFormat, settings: FuzzSettings
) -> tuple[Mutation, ...]:
    """Return the mutations asked for, or the usual ones for inputs of this format."""
    if mutations is None:
        if isinstance(input_format, Pixels) and roots.dim() == 4:
            side = min(roots.shape[2:])
            return tuple(image_mutations(side, identities=settings.identities, border=settings.border))
        if isinstance(input_format, Tokens):
            return tuple(text_mutations(padding=input_format.padding))
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


def _refuse(where: str, part: str, stored: Any, ours: Any) -> None:
    raise MismatchError(f"{where}: the campaign there has {part} {stored}, this one {ours}; give it what it had")


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, value in model.state_dict().items():
        # Others, such as quantised ones or those without data, cannot be told by their bytes.
        if type(value) is Tensor and value.layout == torch.strided and not (value.is_quantized or value.is_meta):
            yield name, value


def _describe_validity(validity: Validity) -> dict[str, Any]:
    """Return a rule as plain data; one of the user's own by its name."""
    identity = getattr(validity, "identity", None)
    return {"rule": getattr(validity, "__name__", "own")} if identity is None else identity()


def _describe_machine(device: torch.device) -> dict[str, str]:
    """Return what a campaign runs on: it goes on to the bit only on the same."""
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }

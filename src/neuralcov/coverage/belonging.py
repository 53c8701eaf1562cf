"""What belongs together: rules by which merging, restoring and loading refuse what was measured otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from neuralcov.core.counted import counted
from neuralcov.core.criterion import DUPLICATE_FREE
from neuralcov.core.errors import MismatchError, SameInputsError
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.provenance import short
from neuralcov.coverage.seen import SeenInputs

# The share of a suite that another may have in common with it: data sets hold a few duplicates.
_OVERLAP = 0.01


def require_same_criteria(
    ours: Measurement,
    names: tuple[str, ...],
    identities: Mapping[str, str | None],
    what: str,
    other: Measurement | None = None,
) -> None:
    """Refuse other criteria, or the same with another calibration.

    Args:
        ours: the measurement to compare with.
        names: of the criteria.
        identities: by criterion, the id of what it learnt.
        what: what to call the other side.
        other: the other side, where it is a measurement too.
    """
    if names != ours.collection.names:
        raise MismatchError(
            f"criteria differ: this coverage has {', '.join(ours.collection.names)}, {what} has {', '.join(names)}"
        )
    for name, identity in ours.learnt_ids().items():
        if not ours.has_learnt(name, identities[name], other):
            raise other_calibration(name, identity, identities[name], what)


def require_same_definitions(ours: Measurement, definitions: Mapping[str, int], what: str) -> None:
    """Refuse states that were measured under other definitions."""
    for name, definition in ours.collection.definitions.items():
        if definitions[name] != definition:
            raise MismatchError(
                f"{name}: this coverage has definition {definition}, {what} {definitions[name]}: measure again with "
                "one version"
            )


def require_same_model(ours: Measurement, theirs: str | None, what: str) -> None:
    """Refuse what was measured on another model, or on one that nobody knows."""
    found = ours.provenance.measured_on(empty=ours.collection.empty)
    identity = None if found is None else str(found["id"])
    if identity != theirs:
        here = "does not say" if identity is None else f"was measured on weights {short(identity)}"
        there = "does not say" if theirs is None else f"on {short(theirs)}"
        raise MismatchError(f"models differ: this coverage {here}, {what} {there}")


def require_other_inputs(ours: Measurement, theirs: SeenInputs, overlap: str) -> None:
    """Refuse inputs that are here already, as far as that would count them twice and nobody meant it."""
    if overlap == "repeat":
        return
    for run in ours.seen.common_runs(theirs):
        raise SameInputsError(
            f"the run {short(run.id)} of {counted(run.inputs, 'input')} is in both: it would count twice"
        )
    fewer = min(ours.seen.inputs, theirs.inputs)
    share = ours.seen.overlap(theirs) / fewer if fewer else 0.0
    affected = [criterion.name for criterion in ours.collection.criteria if DUPLICATE_FREE not in criterion.promises]
    if share > _OVERLAP and affected and overlap == "refuse":
        raise SameInputsError(
            f"about {share:.0%} of the inputs are in both, which {affected[0]} would count twice: pass "
            'overlap="allow" (--allow-overlap) to have it so'
        )


def other_calibration(name: str, ours: str | None, theirs: str | None, what: str) -> MismatchError:
    """Return the error that two calibrations of a criterion differ."""
    return MismatchError(f"{name}: calibrations differ: this coverage has {short(ours)}, {what} has {short(theirs)}")

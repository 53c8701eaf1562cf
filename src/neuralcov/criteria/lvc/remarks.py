"""What a person should read beside LVC's value: layers left out, far inputs, suites too small for the layers."""

from __future__ import annotations

from neuralcov.core.counted import agreeing, counted
from neuralcov.core.counts import VALID
from neuralcov.core.layout import in_execution_order
from neuralcov.criteria.lvc.learnt import LVCLearnt
from neuralcov.criteria.lvc.room import FAR, SLOTS
from neuralcov.criteria.lvc.suites import LVCState


def sentences(learnt: LVCLearnt, state: LVCState) -> tuple[str, ...]:
    """Return the remarks on a state. Waits for the device."""
    widest, valid = max(state.widths), int(state.counts[VALID])
    said = []
    if learnt.constant:
        said.append(f"constant in training and left out: {', '.join(learnt.constant)}")
    met = in_execution_order(state.widths, [room.met[0] for room in state.rooms]).tolist()
    crowded = {name: far for name, far in zip(learnt.names, met, strict=True) if far > SLOTS}
    if crowded:
        said.append(
            f"{counted(max(crowded.values()), 'input')} lie over {FAR:g} times as far out as training inputs in "
            f"{', '.join(crowded)}: more than {SLOTS}, so that none of them counts there"
        )
    if learnt.seen < 10 * widest:
        said.append(
            f"calibrated on {counted(learnt.seen, 'input')}, fewer than 10 times the widest layer ({widest} neurons)"
        )
    if 0 < valid < 2 * widest:
        said.append(
            f"{counted(valid, 'input')} {agreeing(valid, 'is', 'are')} fewer than twice the widest "
            f"layer ({widest} neurons): "
            "in such a layer the value falls short by 9 % or more; compare suites of equal size only"
        )
    elif 0 < valid < 10 * widest:
        said.append(
            f"{counted(valid, 'input')} {agreeing(valid, 'is', 'are')} fewer than 10 times the widest "
            f"layer ({widest} neurons): "
            "in such a layer the value falls short by 2 to 9 %; compare suites of equal size"
        )
    return tuple(said)

"""One coverage from those of many processes: states merged up a tree, or every step's batches brought together.

States travel as the bytes of a state file and are merged in the order of the ranks. Rank 0 sends the result to all, so
that every process holds the same, to the bit. Criteria that merge exactly have then the value of one process that saw
all inputs; the growing rule of NLC and the clusters of CC depend on the order of inputs, and findings say that they
were merged. With ``sync="step"`` nothing is merged: in every step, all processes observe the batches of all, one behind
the other, as one process does whose batches are as large as theirs together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError, MismatchError
from neuralcov.coverage import merging, saving
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.collection import CriterionCollection
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.packed_batches import pack_batch, unpack_batch
from neuralcov.coverage.seen import KeyRule, SeenInputs
from neuralcov.coverage.uniting import united
from neuralcov.distributed import Ranks
from neuralcov.tap.inputs import Lengths

SYNCS = ("end", "step")


def reduce(ours: Measurement, ranks: Ranks | None) -> None:
    """Replace the states of this process by those of all processes together."""
    seen = ours.seen
    if ranks is None:
        return
    told = ranks.gather(lambda: json.dumps([seen.reduced is not None, seen.reduced != seen.inputs]).encode())
    before = [json.loads(each) for each in told]
    if any(reduced for reduced, _ in before):
        if not any(changed for _, changed in before):
            return
        raise MismatchError(
            "the inputs of an earlier reduce are in every process and would count once for each: reset() before "
            "measuring what comes next, or use assess(..., group=), which reduces only what is new"
        )
    _merge_all(ours, ranks)


def assess(ours: Measurement, ranks: Ranks, sync: str, observe: Callable[[], None], step: Callable[[], None]) -> None:
    """Observe the shards of all processes as one suite.

    Args:
        ours: what is measured here.
        ranks: the processes.
        sync: ``"end"`` or ``"step"``.
        observe: observe this process's shard, which may be empty.
        step: observe the shards of all processes step by step.
    """
    runs = [[run.id, run.inputs] for run in ours.seen.runs]
    told = [json.loads(each) for each in ranks.gather(lambda: json.dumps([ours.seen.reduced, runs]).encode())]
    common = all(one == told[0] for one in told) and (
        told[0][0] is not None or any(identity is not None for identity, _ in runs)
    )
    if not common and (sync == "step" or any(reduced is not None for reduced, _ in told)) and any(r for _, r in told):
        raise MismatchError(
            "the processes hold different inputs from before, some of them of an earlier reduce: reset() in all of "
            "them, or start all of them from one state"
        )
    if sync == "step":
        step()
    elif common and runs:
        # What all of them have counts once: what is new is merged apart, and then put behind it.
        before = merging.take_snapshot(ours)
        ours.clear()
        try:
            _observe_and_merge(ours, ranks, observe)
        except BaseException:
            merging.restore(ours, before)
            raise
        fresh = ours.fork()
        merging.restore(ours, before)
        merging.merge(ours, fresh, "repeat")
    else:
        _observe_and_merge(ours, ranks, observe)
    ours.seen.reduced = ours.seen.inputs


def assess_by_steps(
    ours: Measurement, reader: BatchReader, ranks: Ranks, data: Any, lengths: Lengths | None, progress: bool | None
) -> None:
    """Observe the batches of all processes, those of one step as one batch whose rows are the ranks' in order."""
    observed = False
    ours.seen.end_run()
    with reader.first(), reader.open():
        batches = iter(reader.inputs(data, lengths, "assessing", progress))

        def next_batch() -> bytes:
            batch = next(batches, None)
            return b"" if batch is None else pack_batch(reader.run_batch(batch, relevance=True)[0])

        while True:
            parts = [part for part in ranks.gather(_done(next_batch)) if part]
            if not parts:
                break
            layout = ours.collection.layout
            device = ours.device if layout is None else layout.device
            joined = Activations.cat([unpack_batch(part, device) for part in parts])
            reader.watch()
            ours.collection.observe(reader.in_layout_order(joined))
            observed = True
    ours.seen.end_run()
    if not observed:
        raise InputError("the data gave no batch in any process: nothing was assessed")


def _observe_and_merge(ours: Measurement, ranks: Ranks, observe: Callable[[], None]) -> None:
    """Observe this process's shard and merge all; a failure here is told to the others."""

    def work() -> bytes:
        observe()
        return b"some" if ours.collection.inputs else b""

    if not any(ranks.gather(_done(work))):
        raise InputError("the data gave no batch in any process: nothing was assessed")
    _merge_all(ours, ranks)


def _done(work: Callable[[], bytes]) -> Callable[[], bytes]:
    """Do some work now; return a function that gives what came of it, or raises what went wrong."""
    failure: Exception | None = None
    found = b""
    try:
        found = work()
    except Exception as error:
        failure = error

    def result() -> bytes:
        if failure is not None:
            raise failure
        return found

    return result


def _merge_all(ours: Measurement, ranks: Ranks) -> None:
    """Merge up the tree and take over what came of it."""

    def merged(total: Measurement, theirs: Measurement) -> Measurement:
        merging.merge(total, theirs, "repeat")
        return total

    whole = _brought_together(ours, ranks, merged)
    if whole:
        saving.load_state(ours, whole, same_run=False)
    ours.seen.reduced = ours.seen.inputs


def unite(ours: Measurement, ranks: Ranks | None) -> Measurement:
    """Return the layers of all processes, in the order of the ranks, as one process holds them."""
    if ranks is None:
        saving.require_layers(ours)
        return _measurement_of(saving.to_bytes(ours), "this coverage", ours)

    def side_by_side(total: Measurement, theirs: Measurement) -> Measurement:
        return united(total, theirs, "stages")

    told = ranks.gather(lambda: b"" if ours.collection.empty else b"some")
    if not all(told):
        raise MismatchError(f"rank {told.index(b'')} has observed nothing: every stage needs the same inputs")
    return _measurement_of(_brought_together(ours, ranks, side_by_side), "all stages", ours)


def _brought_together(
    ours: Measurement, ranks: Ranks, join: Callable[[Measurement, Measurement], Measurement]
) -> bytes:
    """Join what all processes have, pair by pair up the tree, and return the whole as bytes; empty if none has any."""
    total = None if ours.collection.empty else ours.fork()
    # Before anybody waits for another: to tell the model of a sharded one, all processes work together.
    ready = _done(lambda: b"" if total is None else json.dumps(total.describe()).encode())

    def pack() -> bytes:
        ready()
        return b"" if total is None else saving.to_bytes(total)

    def take(rank: int, part: bytes) -> None:
        nonlocal total
        if not part:
            return
        theirs = _measurement_of(part, f"rank {rank}", ours)
        total = theirs if total is None else join(total, theirs)

    return ranks.reduce(pack, take)


def _measurement_of(part: bytes, name: str, ours: Measurement) -> Measurement:
    """Read what another process sent."""
    layout = ours.collection.layout
    device = ours.device if layout is None else layout.device
    content = saving.read(part, name, device, ours.seen.rule, ours.collection.criteria)
    theirs = Measurement(CriterionCollection(content.criteria, SeenInputs(KeyRule())), None)
    saving.start_from(theirs, content, name)
    return theirs

"""Measure and fuzz on the machines of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuralcov.coverage.coverage import Coverage
from neuralcov.distributed import Answer, RayCluster, RayWorkers
from neuralcov.fuzz import Fuzzer


def measure(
    shard: Callable[[int, int], Coverage], shards: int, *, address: str | None = None, **resources: Any
) -> Coverage:
    """Measure the shards of a suite as tasks of Ray, and merge them up a tree, in order.

    A shard whose worker dies is measured again. Values are those of shards that were measured apart, see
    ``docs/scale.md``.

    Args:
        shard: gives the coverage of one shard, called with its number, from 0 on, and how many there are. All must have
            the same weights, criteria and calibration.
        shards: how many.
        address: of a cluster, or ``"auto"``; by default one is started on this machine, unless the program has joined
            one.
        resources: what a task asks for, such as ``num_cpus=4``, ``num_gpus=1``.

    Returns:
        A coverage without a model, to read off and to save.
    """

    def work(number: int) -> bytes:
        return shard(number, shards).to_bytes()

    with RayCluster(address) as cluster:
        return Coverage.from_bytes(cluster.reduce(work, _merged, shards, **resources))


def _merged(one: bytes, other: bytes) -> bytes:
    total = Coverage.from_bytes(one)
    total.own_states()
    total.merge(Coverage.from_bytes(other), overlap="allow")
    return total.to_bytes()


class FuzzWorkers(RayWorkers):
    """Run the waves of a campaign on Ray: ``fuzzer.run(…, workers=FuzzWorkers(build, 8))``.

    Workers share one corpus and one coverage, join when there is room for them, and are replaced when they are lost.

    Args:
        build: gives a fuzzer like the one that runs, with the model on the worker's device; called in every worker.
        count: how many workers to have at most; those for which there is no room yet join later.
        address: of a cluster, or ``"auto"``; by default one is started on this machine, unless the program has joined
            one.
        patience: seconds to wait while no worker is there.
        resources: what a worker asks for, such as ``num_cpus=4``, ``num_gpus=1``.
    """

    def __init__(
        self,
        build: Callable[[], Fuzzer],
        count: int = 1,
        *,
        address: str | None = None,
        patience: float = 600.0,
        **resources: Any,
    ) -> None:
        def worker() -> Answer:
            return build().worker().answer

        super().__init__(worker, count, address=address, patience=patience, **resources)

"""Carry bytes between processes; nothing here knows of coverage."""

from neuralcov.distributed.process_group import PATIENCE, Ranks, joined_by_torchrun, ranks_of
from neuralcov.distributed.ray import RayCluster, RayWorkers
from neuralcov.distributed.workers import Answer, Event, Workers

__all__ = [
    "Answer",
    "Event",
    "PATIENCE",
    "Ranks",
    "RayCluster",
    "RayWorkers",
    "Workers",
    "joined_by_torchrun",
    "ranks_of",
]

"""Carry bytes between processes; nothing here knows of coverage."""

from neuralcov.distributed.process_group import PATIENCE, Ranks, joined_by_torchrun, ranks_of

__all__ = ["PATIENCE", "Ranks", "joined_by_torchrun", "ranks_of"]

"""NPC, neural path coverage."""

from neuralcov.criteria.npc.npc import NPC

__all__ = ["NPC"]

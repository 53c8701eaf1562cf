"""A campaign: its state, its folder, and what came of it."""

"""Live in the tools people already have; each module imports its package only when it is used."""

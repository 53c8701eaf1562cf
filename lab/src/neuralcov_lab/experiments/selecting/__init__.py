"""``select``: which order of unlabelled inputs shows faults first."""

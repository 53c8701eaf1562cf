"""Compare rules and guides of fuzzing, and show what faults are good for."""

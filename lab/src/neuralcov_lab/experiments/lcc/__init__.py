"""The proof of LCC: ground-truth orders, honesty of its figures, suites made to fool it, and stability."""

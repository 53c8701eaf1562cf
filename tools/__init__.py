"""Small programs for people who work on neuralcov."""

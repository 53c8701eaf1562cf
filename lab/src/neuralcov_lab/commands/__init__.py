"""The commands that the lab adds to ``neuralcov``: data, train and reproduce."""

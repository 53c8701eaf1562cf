"""Models, data and criteria that a command line names."""

"""The command line: a file per family of commands."""

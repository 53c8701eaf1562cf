"""Data sets and published weights from ordinary package registries, pinned and checked."""

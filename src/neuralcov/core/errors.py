"""Every error a user can cause, each said in one sentence: the value, what was expected, what to do."""

from __future__ import annotations


class NeuralcovError(Exception):
    """Be the base of all errors raised on purpose; anything else is a bug."""


class HyperParameterError(NeuralcovError, ValueError):
    """Say that a criterion was built with an argument outside its range."""


class DeclarationError(NeuralcovError, TypeError):
    """Say that a record is declared under a name that files could not tell from another."""


class LayerError(NeuralcovError, ValueError):
    """Say that a layer is unknown, was never run, or has an output that cannot be read as neurons."""


class InputError(NeuralcovError, ValueError):
    """Say that a batch, a label or a data set does not have the form that was asked for."""


class CalibrationError(NeuralcovError, RuntimeError):
    """Say that calibration is missing, came too late, or saw nothing to learn from."""


class MismatchError(NeuralcovError, ValueError):
    """Say that two coverages do not belong together: other criteria, layers or calibration."""


class SameInputsError(MismatchError):
    """Say that inputs of one coverage are in another already, and would count twice."""


class StateFileError(NeuralcovError, ValueError):
    """Say that a file is not one of ours, is damaged, or belongs to something else."""


class ForeignFileError(StateFileError):
    """Say that a file is sound, but neuralcov did not write it."""


class StaleProposalError(NeuralcovError, RuntimeError):
    """Say that a proposal was committed after the coverage it was judged against had moved on."""


class MemoryBudgetError(NeuralcovError, MemoryError):
    """Say that what was asked for does not fit the memory that was allowed."""


class CampaignError(NeuralcovError, RuntimeError):
    """Say that a fuzzing campaign cannot start or go on: its folder is in use, damaged or of another campaign."""


class RankError(NeuralcovError, RuntimeError):
    """Say that another process of a group failed, is gone, or did not answer in time."""


class MissingExtraError(NeuralcovError, ImportError):
    """Say that something needs a package that comes with one of neuralcov's extras."""


class CoverageWarning(UserWarning):
    """Tell a finding worth a person's attention that does not stop the measurement."""

"""The NLC paper's experiments, repeated on real data, cut into cells that can be interrupted and resumed."""

from neuralcov.experiments.catalogue import PLANS, cells_of
from neuralcov.experiments.cells import CellFolder, Outcome, run_cells
from neuralcov.experiments.scales import SCALES, Scale
from neuralcov.experiments.workbench import Workbench

__all__ = ["PLANS", "SCALES", "CellFolder", "Outcome", "Scale", "Workbench", "cells_of", "run_cells"]

"""The NLC paper's experiments, repeated on real data, cut into cells that can be interrupted and resumed."""

from neuralcov_lab.experiments.catalogue import PLANS, cells_of
from neuralcov_lab.experiments.cells import CellFolder, Outcome, run_cells
from neuralcov_lab.experiments.scales import SCALES, Scale
from neuralcov_lab.experiments.workbench import Workbench

__all__ = ["PLANS", "SCALES", "CellFolder", "Outcome", "Scale", "Workbench", "cells_of", "run_cells"]

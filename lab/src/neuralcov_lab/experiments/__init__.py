"""The NLC paper's experiments, repeated on real data, cut into jobs that can be interrupted and resumed."""

from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import JobFolder, Outcome, run_jobs
from neuralcov_lab.experiments.plans import PLANS, jobs_of
from neuralcov_lab.experiments.scales import SCALES, Scale

__all__ = ["PLANS", "SCALES", "JobFolder", "Outcome", "Scale", "ExperimentContext", "jobs_of", "run_jobs"]

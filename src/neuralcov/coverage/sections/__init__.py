"""What ``assess`` notes of a suite beside states, for the sections of a report."""

from neuralcov.coverage.sections.assessed import Assessed, join_assessed
from neuralcov.coverage.sections.growth import GrowthRecorder, rarefied_growth
from neuralcov.coverage.sections.neurons import NeuronExtremes, NeuronRecorder, layer_neurons
from neuralcov.coverage.sections.stored import assessed_to_json, read_assessed
from neuralcov.coverage.sections.suite_map import MapRecorder, TrainingMap, TrainingSample
from neuralcov.coverage.sections.views import ViewStore

__all__ = [
    "Assessed",
    "GrowthRecorder",
    "MapRecorder",
    "NeuronExtremes",
    "NeuronRecorder",
    "TrainingMap",
    "TrainingSample",
    "ViewStore",
    "assessed_to_json",
    "join_assessed",
    "layer_neurons",
    "rarefied_growth",
    "read_assessed",
]

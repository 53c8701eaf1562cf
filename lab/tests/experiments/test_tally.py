import torch

import neuralcov as nc
from neuralcov.core.activations import Activations
from neuralcov_lab.experiments.tally import Tally


def batch(seed):
    return Activations({"fc": torch.rand(6, 4, generator=torch.Generator().manual_seed(seed))})


def test_going_on_with_some_criteria_leaves_the_state_it_started_from_alone():
    criteria = [nc.NC(0.5), nc.NLC(rule="all")]
    training = Tally(criteria, batch(0).layout, None)
    training.observe(batch(0))
    start, before = training.states, training.values()
    other = Tally(criteria, batch(0).layout, None)
    other.start_from(start)
    other.keep(lambda criterion: criterion.name == "NLC(rule=all)")
    other.observe(batch(1))
    assert list(other.values()) == ["NLC(rule=all)"]
    assert other.values()["NLC(rule=all)"] != before["NLC(rule=all)"]
    assert training.values() == before

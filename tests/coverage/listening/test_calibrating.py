"""Learning from the passes of a training, and what says that the weights moved meanwhile."""

from datetime import date

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.results.gate import judge_gate
from neuralcov.results.policy import Policy
from tests.coverage.listening.support import listen_to, run

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def test_calibrating_by_listening_equals_calibrating(net, loader, training):
    criteria = [nc.SNAC(), nc.LCC(), nc.LVC(), nc.DSC(0.1, by="label")]
    taught, heard = (nc.Coverage(net, criteria) for _ in range(2))
    taught.calibrate(training)
    with heard.listen(calibrate=True):
        run(net, training, heard)
    assert heard.calibration_ids() == taught.calibration_ids()
    assert heard.inputs == 0
    for coverage in (taught, heard):
        coverage.assess(loader)
    assert heard.values() == taught.values()
    with pytest.raises(nc.NeuralcovError, match="calibrate comes before the first update"):
        listen_to(heard, lambda: run(net, training), calibrate=True)


def trained_calibration(net, training):
    """A coverage that has learnt from the last epoch of a training."""
    coverage = nc.Coverage(net, [nc.SNAC(), nc.LCC()])
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    with coverage.listen(calibrate=True):
        for images, labels in training:
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimiser.step()
    return coverage


def alarms(coverage):
    return [alarm.name for alarm in coverage.results().sanity.alarms]


def test_a_calibration_heard_while_weights_move_is_marked_and_no_gate_is_met(net, loader, training, tmp_path):
    coverage = trained_calibration(net.train(), training)
    net.eval()
    coverage.assess(loader)
    assert coverage.provenance()["calibration"]["weights"] == "moving"
    verdict = judge_gate(coverage.results(), Policy(least={"SNAC": 0.0}), date.today())
    assert not verdict.met
    assert "weights that changed" in next(c.sentence for c in verdict.checks if c.name == "alarm:moving calibration")
    # It serves the weights at its end, and files remember it.
    coverage.save(tmp_path / "suite.ncov")
    coverage.save_calibration(tmp_path / "train.ncal")
    for model in (net, None):
        assert "moving calibration" in alarms(nc.Coverage.load(tmp_path / "suite.ncov", model))
    taught = nc.Coverage(net, [nc.SNAC(), nc.LCC()])
    taught.calibrate(tmp_path / "train.ncal")
    taught.assess(loader)
    assert taught.values() == coverage.values()
    assert "moving calibration" in alarms(taught)
    taught.save(tmp_path / "again.ncov")
    assert "moving calibration" in alarms(nc.Coverage.load(tmp_path / "again.ncov", net))
    with torch.no_grad():
        net.fc1.weight.mul_(1.01)
    coverage.reset()
    with pytest.raises(nc.NeuralcovError, match="the calibration was made with weights"):
        coverage.assess(loader)


def test_a_calibration_at_rest_is_not_marked(net, loader, training, tmp_path):
    coverage = nc.Coverage(net, [nc.SNAC(), nc.LCC()])
    with coverage.listen(calibrate=True):
        run(net, training, coverage)
    coverage.assess(loader)
    assert "weights" not in coverage.provenance()["calibration"]
    assert "moving calibration" not in alarms(coverage)
    # A calibration after it replaces it.
    moved = trained_calibration(net.train(), training)
    net.eval()
    moved.calibrate(training)
    moved.assess(loader)
    assert "moving calibration" not in alarms(moved)

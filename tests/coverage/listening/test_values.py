"""Listening to passes that somebody else makes: the values of ``assess`` to the bit, and nothing run for them."""

import pytest

import neuralcov as nc
from neuralcov.core.criterion import Criterion
from neuralcov.core.find_criterion import criterion_class
from neuralcov.criteria import ALL
from tests.coverage.listening.support import calibrated, run, same_states

SETTINGS = {
    "NLC": [nc.NLC(), nc.NLC(rule="all"), nc.NLC(classes=3)],
    "LVC": [nc.LVC(), nc.LVC(groups=4)],
    "NPC": [nc.NPC(clusters=2, buckets=7)],
    "DSC": [nc.DSC(0.1), nc.DSC(0.2, by="label")],
    "CC": [nc.CC(1)],
    "LCC": [nc.LCC(), nc.LCC(over="mean")],
}
CRITERIA = [criterion for cls in ALL for criterion in SETTINGS.get(cls.__name__, [cls()])]


pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def test_every_criterion_of_the_registry_is_heard_below():
    found = [criterion_class(name) for name in list(Criterion.known)]
    shipped = {cls.__name__ for cls in found if cls is not None and cls.__module__.startswith("neuralcov.")}
    assert {type(criterion).__name__ for criterion in CRITERIA} == shipped


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)
def test_values_equal_those_of_assess_to_the_bit(net, loader, training, criterion):
    assessed, heard = (calibrated(net, [criterion], training) for _ in range(2))
    assessed.assess(loader)
    with heard.listen() as block:
        run(net, loader, heard)
    assert heard.values() == assessed.values()
    assert any(value > 0 for value in heard.values().values())
    assert same_states(heard, assessed)
    assert heard.details() == assessed.details()
    assert (block.passes, block.inputs, heard.inputs) == (4, 70, 70)
    assert heard.by_layer() == assessed.by_layer()
    assert heard.sanity() == assessed.sanity()


def test_all_criteria_at_once(net, loader, training):
    assessed, heard = (calibrated(net, CRITERIA, training) for _ in range(2))
    assessed.assess(loader)
    with heard.listen():
        run(net, loader, heard)
    assert heard.values() == assessed.values()
    assert same_states(heard, assessed)


def test_values_equal_those_of_assess_with_ordinary_gradients_on(net, loader, training):
    """A user who forgets ``no_grad`` gets the same values, and the gradients that he would have had."""
    heard, assessed = (calibrated(net, [nc.NLC(), nc.SNAC(), nc.LCC()], training) for _ in range(2))
    assessed.assess(loader)
    with heard.listen():
        for images, labels in loader:
            net(images)
            heard.labels(labels)
    assert heard.values() == assessed.values()


def test_nothing_is_run_for_it(net, loader, training):
    calls = []
    net.register_forward_hook(lambda *_: calls.append("net"))
    net.fc1.register_forward_hook(lambda *_: calls.append("fc1"))
    coverage = calibrated(net, [nc.NLC(), nc.SNAC(), nc.DSC(0.1)], training)
    calls.clear()
    with coverage.listen():
        run(net, loader)
    assert calls == ["fc1", "net"] * len(loader)
    coverage.values()
    assert len(calls) == 2 * len(loader)


def test_no_probe_even_where_nothing_is_known_of_the_rows(net, loader):
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    with nc.watch(net, [nc.NC()]) as coverage:
        run(net, loader)
    assert len(calls) == len(loader)
    assert coverage.inputs == 70


def test_the_short_form(net, loader, training):
    with nc.watch(net, [nc.NLC(), nc.TKNC(2)], layers="fc*") as coverage:
        run(net, loader, coverage)
    assessed = nc.Coverage(net, [nc.NLC(), nc.TKNC(2)], layers="fc*")
    assessed.assess(loader)
    assert coverage.values() == assessed.values()
    assert coverage.sanity() == assessed.sanity()


def test_results_of_a_heard_suite_are_saved_and_merged(net, loader, training, tmp_path):
    heard, assessed = (calibrated(net, [nc.SNAC(), nc.LCC()], training) for _ in range(2))
    with heard.listen():
        run(net, loader, heard)
    heard.save(tmp_path / "heard.ncov")
    loaded = nc.Coverage.load(tmp_path / "heard.ncov", net)
    assert loaded.values() == heard.values()
    assessed.assess(loader)
    # The same inputs have the same keys, however they were measured.
    with pytest.raises(nc.NeuralcovError, match="of 70 inputs is in both"):
        loaded.merge(assessed, overlap="allow")

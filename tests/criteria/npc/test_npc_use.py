"""NPC in use: names, arguments, what is missing, files, and a model."""

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov import demo
from tests.criteria.npc.npc_support import BruteForce, explained, measured, unused
from tests.support import WIDTHS


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, "NPC(0.7)"),
        ({"alpha": 0.5}, "NPC(0.5)"),
        ({"beta": 0.5, "mode": "activation", "upper": 2}, "NPC(0.7, beta=0.5, mode=activation, upper=2)"),
    ],
)
def test_names(arguments, name):
    assert nc.NPC(**arguments).name == name


def test_positional_arguments():
    assert nc.NPC(0.6, 0.5, 3, 20, "activation", 4.0).parameters == {
        "alpha": 0.6,
        "beta": 0.5,
        "clusters": 3,
        "buckets": 20,
        "mode": "activation",
        "upper": 4.0,
        "memory": "16GiB",
        "errors": False,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"alpha": 0},
        {"alpha": 1.1},
        {"alpha": "most"},
        {"beta": 0},
        {"beta": 1.5},
        {"clusters": 0},
        {"clusters": 2.0},
        {"buckets": 0},
        {"mode": "weights"},
        {"upper": 1.0},
        {"mode": "activation", "upper": 0},
        {"mode": "activation", "upper": -1.0},
    ],
)
def test_arguments_out_of_range(arguments):
    with pytest.raises(nc.NeuralcovError, match=rf"NPC\({list(arguments)[-1]}="):
        nc.NPC(**arguments)


def test_before_calibration():
    coverage = nc.Coverage.of_layers(WIDTHS, [nc.NPC()])
    for attempt in (coverage.values, lambda: coverage.update(activations=explained(1, 3))):
        with pytest.raises(nc.NeuralcovError, match=r"NPC\(0.7\) needs calibration"):
            attempt()


def test_what_a_batch_lacks_is_named():
    training = explained(1, 30)
    coverage = nc.Coverage.of_layers(WIDTHS, [nc.NPC()])
    bare = nc.Activations(training.layers, training.labels, training.predictions)
    with pytest.raises(nc.NeuralcovError, match="paths need relevance"):
        coverage.calibrate(activations=bare)
    with pytest.raises(nc.NeuralcovError, match="calibrate with labels"):
        coverage.calibrate(activations=nc.Activations(training.layers, None, training.predictions, training.relevance))
    coverage.calibrate(activations=training)
    with pytest.raises(nc.NeuralcovError, match=r"NPC\(0.7\) needs relevance"):
        coverage.update(activations=bare)
    short = {name: values for name, values in training.relevance.items() if name != "b"}
    with pytest.raises(nc.NeuralcovError, match="the relevance lacks layer 'b'"):
        coverage.update(activations=nc.Activations(training.layers, None, training.predictions, short))
    wide = {**training.relevance, "b": torch.zeros(30, 4)}
    with pytest.raises(nc.NeuralcovError, match=r"relevance of layer 'b' has shape \(30, 4\): expected \(30, 1\)"):
        coverage.update(activations=nc.Activations(training.layers, None, training.predictions, wide))


def test_nothing_classified_correctly():
    training = explained(1, 30)
    training.predictions[:] = (training.labels + 1) % 3
    coverage = nc.Coverage.of_layers(WIDTHS, [nc.NPC()])
    with pytest.raises(nc.NeuralcovError, match="none of 30 training inputs was classified correctly"):
        coverage.calibrate(activations=training)


def test_a_structure_file_goes_on_by_itself(tmp_path):
    training, tests, more = explained(1, 60), explained(2, 20), explained(3, 20)
    coverage = measured(nc.NPC(), training, tests)
    coverage.save(tmp_path / "suite.ncov")
    loaded = nc.Coverage.load(tmp_path / "suite.ncov")
    assert loaded.values() == coverage.values()
    for each in (coverage, loaded):
        each.update(activations=more)
    assert loaded.values() == coverage.values()
    with pytest.raises(nc.NeuralcovError, match="is in both: it would count twice"):
        loaded.merge(coverage)


def test_an_activation_file_goes_on_with_its_calibration(tmp_path):
    training, tests, more = explained(1, 60), explained(2, 20), explained(3, 20)
    coverage = measured(nc.NPC(mode="activation"), training, tests)
    coverage.save(tmp_path / "suite.ncov")
    coverage.save_calibration(tmp_path / "training.ncal")
    alone = nc.Coverage.load(tmp_path / "suite.ncov")
    assert alone.values() == coverage.values()
    with pytest.raises(nc.NeuralcovError, match="holds no training inputs to compare with; load it with calibration="):
        alone.update(activations=more)
    loaded = nc.Coverage.load(tmp_path / "suite.ncov", calibration=tmp_path / "training.ncal")
    for each in (coverage, loaded):
        each.update(activations=more)
    assert loaded.values() == coverage.values()


def test_a_saved_calibration_serves_its_own_alpha_only(tmp_path):
    training, tests = explained(1, 60), explained(2, 20)
    first = nc.Coverage.of_layers(WIDTHS, [nc.NPC(), nc.NPC(beta=0.5, clusters=2), nc.NPC(0.4)])
    first.calibrate(activations=training)
    first.save_calibration(tmp_path / "training.ncal")
    ids = first.calibration_ids()
    assert ids["NPC(0.7)"] == ids["NPC(0.7, beta=0.5, clusters=2)"] != ids["NPC(0.4)"]
    second = nc.Coverage.of_layers(WIDTHS, [nc.NPC(0.4, clusters=2)])
    second.calibrate(tmp_path / "training.ncal")
    second.update(activations=tests)
    assert unused(second) == unused(measured(nc.NPC(0.4, clusters=2), training, tests))
    with pytest.raises(nc.NeuralcovError, match=r"holds no paths\(0.5\), which NPC\(0.5\) learns from"):
        nc.Coverage.of_layers(WIDTHS, [nc.NPC(0.5)]).calibrate(tmp_path / "training.ncal")
    with pytest.raises(nc.NeuralcovError, match=r"holds no traces, which NPC\(0.4, mode=activation\)"):
        nc.Coverage.of_layers(WIDTHS, [nc.NPC(0.4, mode="activation")]).calibrate(tmp_path / "training.ncal")


def test_the_order_of_layers_in_a_batch_does_not_matter():
    training, tests = explained(1, 60), explained(2, 20)
    turned = nc.Activations(
        dict(reversed(tests.layers.items())), None, tests.predictions, dict(reversed(tests.relevance.items()))
    )
    assert unused(measured(nc.NPC(), training, turned)) == unused(measured(nc.NPC(), training, tests))


class TestOnAModel:
    @pytest.fixture(scope="class")
    def net(self):
        return demo.train_digits(epochs=2, progress=False)

    @pytest.fixture(scope="class")
    def coverage(self, net):
        coverage = nc.Coverage(net, [nc.NPC(), nc.NC(0.5), nc.NPC(mode="activation")])
        coverage.calibrate(demo.digits("train").take(slice(0, 500)).batches(), progress=False)
        return coverage

    def test_the_test_set_covers_more_than_a_tenth_of_it(self, coverage):
        test = demo.digits("test")
        coverage.reset()
        coverage.assess(test.take(slice(0, 60)).batches(), progress=False)
        tenth = coverage.values()
        coverage.assess(test.batches(), progress=False)
        whole = coverage.values()
        assert 0 < tenth["NPC(0.7)"] < whole["NPC(0.7)"] < 1
        assert 0 < tenth["NPC(0.7, mode=activation)"] < whole["NPC(0.7, mode=activation)"] < 1

    def test_equals_brute_force_from_the_same_relevance(self, net, coverage):
        train, test = demo.digits("train"), demo.digits("test")
        from neuralcov.tap import Batch, Tap

        tap = Tap(net)
        training, _ = tap.run(Batch(train.pixels()[:300], train.labels[:300]), relevance=True)
        tests, _ = tap.run(Batch(test.pixels()[:40], test.labels[:40]), relevance=True)
        small = nc.Coverage(net, [nc.NPC(clusters=2)])
        small.calibrate([(train.pixels()[:300], train.labels[:300])], progress=False)
        small.update(test.pixels()[:40])
        expected = BruteForce(training, 0.7, 0.7, 2, 100)
        expected.observe(tests)
        assert small.values()["NPC(0.7, clusters=2)"] == pytest.approx(expected.value, rel=1e-12)

    def test_a_saved_file_goes_on_with_the_model(self, net, coverage, tmp_path):
        test = demo.digits("test")
        coverage.reset()
        coverage.update(test.pixels()[:50])
        coverage.save(tmp_path / "suite.ncov")
        coverage.save_calibration(tmp_path / "training.ncal")
        loaded = nc.Coverage.load(tmp_path / "suite.ncov", net, calibration=tmp_path / "training.ncal")
        gains = [each.gain(test.pixels()[50:80]) for each in (coverage, loaded)]
        for name, gain in gains[0].items():
            assert torch.equal(gains[1][name], gain)
        assert any(gain.any() for gain in gains[0].values())

    def test_labels_are_needed_to_calibrate_and_not_after(self, net):
        coverage = nc.Coverage(net, [nc.NPC()])
        train = demo.digits("train")
        with pytest.raises(nc.NeuralcovError, match=r"calibrate with labels, for example with a loader of"):
            coverage.calibrate([train.pixels()[:50]], progress=False)
        coverage.calibrate([(train.pixels()[:50], train.labels[:50])], progress=False)
        coverage.update(train.pixels()[50:60])
        assert coverage.values()["NPC(0.7)"] > 0

    def test_a_network_that_cannot_be_followed(self):
        class Attends(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
                self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

            def forward(self, x):
                x = self.embed(x)
                return self.head(self.attention(x, x, x)[0].mean(1))

        coverage = nc.Coverage(Attends(), [nc.NPC()])
        with pytest.raises(nc.NeuralcovError, match=r"through module 'attention' \(MultiheadAttention\)"):
            coverage.calibrate([(torch.randn(4, 5, 3), torch.tensor([0, 1, 0, 1]))], progress=False)
